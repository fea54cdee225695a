PRAGMA "main".freelist_count;
