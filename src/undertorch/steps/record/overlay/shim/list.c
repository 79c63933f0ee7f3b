// Listings: a folder's entries in the copy, then those on the disk that the copy neither has nor marks as gone.

#include "shared.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raw.h"

// An open folder whose listing is put together. Readers know it by the address that opendir() answered.
enum { MOST_OPEN = 256 };
struct listing {
  _Atomic(DIR *) handle;  // NULL: the place is free
  DIR *other;             // the one of the two below that is not the handle; NULL without one
  DIR *above, *below;     // the copy's and the disk's
  bool in_above;          // the copy's is not read through yet
  char path[PATH_MAX];    // the folder's in the copy
};
static struct listing listings[MOST_OPEN];
static _Atomic int open_listings;

static int failed(int error) {
  errno = error;
  return -1;
}

static struct listing *listing_of(DIR *handle) {
  if (!atomic_load(&open_listings)) return NULL;
  for (int i = 0; i < MOST_OPEN; i++) {
    if (atomic_load(&listings[i].handle) == handle) return &listings[i];
  }
  return NULL;
}

static struct listing *keep(DIR *handle) {
  for (int i = 0; i < MOST_OPEN; i++) {
    DIR *none = NULL;
    if (atomic_compare_exchange_strong(&listings[i].handle, &none, handle)) {
      atomic_fetch_add(&open_listings, 1);
      return &listings[i];
    }
  }
  return NULL;
}

// Puts a listing together for a folder that `handle` was opened for, on the disk or in the copy.
static DIR *listing(DIR *handle, const char *name) {
  char path[PATH_MAX];
  struct stat handled, above;
  if (!handle || !in_copy(name, path)) return handle;
  if (raw_lstat(path, &above) < 0 || raw_stat(dirfd(handle), "", &handled, AT_EMPTY_PATH) < 0) return handle;
  const bool of_copy = handled.st_ino == above.st_ino && handled.st_dev == above.st_dev;
  DIR *const other = BEHIND(opendir, opendir)(of_copy ? name : path);
  struct listing *const made = keep(handle);
  if (!made) {
    if (other) BEHIND(closedir, closedir)(other);
    BEHIND(closedir, closedir)(handle);
    failed(EMFILE);
    return NULL;
  }
  made->other = other;
  made->above = of_copy ? handle : other;
  made->below = of_copy ? other : handle;
  made->in_above = made->above != NULL;
  strcpy(made->path, path);
  return handle;
}

static bool marked(const struct listing *listing, const char *entry, bool *there) {
  char path[PATH_MAX];
  struct stat found;
  *there = snprintf(path, sizeof path, "%s/%s", listing->path, entry) < PATH_MAX && raw_lstat(path, &found) == 0;
  return *there && is_mark(&found);
}

static bool is_dots(const char *entry) { return strcmp(entry, ".") == 0 || strcmp(entry, "..") == 0; }

static struct dirent *next_entry(struct listing *listing) {
  bool there;
  struct dirent *entry;
  // Each entry is looked up when it comes up: what is removed while the folder is read does not appear.
  while (listing->in_above && (entry = BEHIND(readdir, readdir)(listing->above))) {
    if (is_dots(entry->d_name) || !marked(listing, entry->d_name, &there)) return entry;
  }
  listing->in_above = false;
  while (listing->below && (entry = BEHIND(readdir, readdir)(listing->below))) {
    if (listing->above && is_dots(entry->d_name)) continue;
    marked(listing, entry->d_name, &there);
    if (!there) return entry;
  }
  return NULL;
}

// --- in the place of libc's -------------------------------------------------------------------------------------------------

DIR *ours_opendir(const char *path) INSTEAD_OF(opendir);
DIR *ours_opendir(const char *path) {
  char name[PATH_MAX], real[PATH_MAX];
  struct stat entry;
  if (!anything_changed()) return BEHIND(opendir, opendir)(path);
  const int found = name_in_view(AT_FDCWD, path, true, name);
  if (found < 0) return NULL;
  if (found == OUTSIDE) return BEHIND(opendir, opendir)(path);
  if (find(name, real, &entry) == NOWHERE) return NULL;
  return listing(BEHIND(opendir, opendir)(real), name);
}

DIR *ours_fdopendir(int descriptor) INSTEAD_OF(fdopendir);
DIR *ours_fdopendir(int descriptor) {
  char name[PATH_MAX];
  DIR *const handle = BEHIND(fdopendir, fdopendir)(descriptor);
  if (!handle || !anything_changed() || name_of_descriptor(descriptor, name) != IN_VIEW) return handle;
  return listing(handle, name);
}

struct dirent *ours_readdir(DIR *handle) INSTEAD_OF(readdir);
struct dirent *ours_readdir(DIR *handle) {
  struct listing *const listing = listing_of(handle);
  if (!listing) return BEHIND(readdir, readdir)(handle);
  const int kept = errno;  // the end of a folder is told by an unchanged errno
  struct dirent *const entry = next_entry(listing);
  errno = kept;
  return entry;
}
ALSO_AS(readdir64, readdir)

int ours_readdir_r(DIR *handle, struct dirent *entry, struct dirent **result) INSTEAD_OF(readdir_r);
int ours_readdir_r(DIR *handle, struct dirent *entry, struct dirent **result) {
  struct dirent *const found = ours_readdir(handle);
  *result = found ? memcpy(entry, found, found->d_reclen < sizeof *entry ? found->d_reclen : sizeof *entry) : NULL;
  return 0;
}
ALSO_AS(readdir64_r, readdir_r)

void ours_rewinddir(DIR *handle) INSTEAD_OF(rewinddir);
void ours_rewinddir(DIR *handle) {
  struct listing *const listing = listing_of(handle);
  BEHIND(rewinddir, rewinddir)(handle);
  if (!listing) return;
  if (listing->other) BEHIND(rewinddir, rewinddir)(listing->other);
  listing->in_above = listing->above != NULL;
}

int ours_closedir(DIR *handle) INSTEAD_OF(closedir);
int ours_closedir(DIR *handle) {
  struct listing *const listing = handle ? listing_of(handle) : NULL;
  if (listing) {
    if (listing->other) BEHIND(closedir, closedir)(listing->other);
    atomic_fetch_sub(&open_listings, 1);
    atomic_store(&listing->handle, NULL);
  }
  return BEHIND(closedir, closedir)(handle);
}

typedef int filter(const struct dirent *entry);
typedef int order(const struct dirent **left, const struct dirent **right);

int ours_scandir(const char *path, struct dirent ***entries, filter *wanted, order *compare) INSTEAD_OF(scandir);
int ours_scandir(const char *path, struct dirent ***entries, filter *wanted, order *compare) {
  DIR *const folder = ours_opendir(path);
  if (!folder) return -1;
  struct dirent **all = NULL;
  int count = 0;
  bool enough = true;
  for (struct dirent *entry; enough && (entry = ours_readdir(folder));) {
    if (wanted && !wanted(entry)) continue;
    struct dirent **const more = realloc(all, (size_t)(count + 1) * sizeof *all);
    struct dirent *const own = malloc(entry->d_reclen);
    enough = more && own;
    if (more) all = more;
    if (enough) all[count++] = memcpy(own, entry, entry->d_reclen);
    else free(own);
  }
  ours_closedir(folder);
  if (!enough) {
    while (count > 0) free(all[--count]);
    free(all);
    return failed(ENOMEM);
  }
  if (compare && count) qsort(all, (size_t)count, sizeof *all, (int (*)(const void *, const void *))compare);
  *entries = all;
  return count;
}
ALSO_AS(scandir64, scandir)
