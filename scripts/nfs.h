// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an embedder of the NFS server includes, as installed: <rodeo/nfs.h>.

#include "apps/nfs/memory_store.h"
#include "apps/nfs/mount_server.h"
#include "apps/nfs/nfs_server.h"
#include "apps/nfs/permissions.h"
#include "apps/nfs/store.h"
