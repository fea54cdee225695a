CREATE TABLE IF NOT EXISTS "main"."chanq_queues" (
  name       TEXT    NOT NULL PRIMARY KEY,
  version    INTEGER NOT NULL,
  paused     INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS "main"."chanq_members" (
  id      BLOB    NOT NULL PRIMARY KEY,
  queue   TEXT    NOT NULL,
  name    TEXT    NOT NULL,
  host    TEXT    NOT NULL,
  process INTEGER NOT NULL,
  since   INTEGER NOT NULL,
  until   INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS "main"."chanq_orders" (
  id          BLOB    NOT NULL PRIMARY KEY DEFAULT (CAST(substr(x'0001020304050607', 1 + (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) >> 40), 1)
    || substr(x'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff', 1 + (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) >> 32 & 255), 1) || substr(x'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff', 1 + (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) >> 24 & 255), 1) || substr(x'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff', 1 + (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) >> 16 & 255), 1) || substr(x'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff', 1 + (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) >> 8 & 255), 1) || substr(x'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff', 1 + (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) >> 0 & 255), 1)
    || substr(x'707172737475767778797a7b7c7d7e7f', 1 + (random() & 15), 1) || randomblob(1)
    || substr(x'808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf', 1 + (random() & 63), 1) || randomblob(7) AS BLOB)),
  priority    INTEGER NOT NULL DEFAULT 0,
  visible_at  INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  enqueued_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  due_at      INTEGER NOT NULL DEFAULT 0,
  expires_at  INTEGER,
  fence       INTEGER NOT NULL DEFAULT 0,
  attempts    INTEGER NOT NULL DEFAULT 0,
  lapses      INTEGER NOT NULL DEFAULT 0,
  dedup_key   TEXT,
  leased_by   BLOB,
  last_error  TEXT,
  headers     BLOB,
  body        BLOB    NOT NULL,
  CHECK (id >= x'' AND length(id) = 16),
  CHECK (priority BETWEEN -1 AND 2 AND (priority | 0) = priority),
  CHECK ((visible_at | 0) = visible_at),
  CHECK ((enqueued_at | 0) = enqueued_at),
  CHECK ((expires_at | 0) = expires_at)
);

CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_ready" ON "chanq_orders" (priority, visible_at, id) WHERE leased_by IS NULL;

CREATE INDEX IF NOT EXISTS "main"."lx_chanq_orders_leased" ON "chanq_orders" (priority, visible_at, id) WHERE leased_by IS NOT NULL;

CREATE UNIQUE INDEX IF NOT EXISTS "main"."ux_chanq_orders_dedup" ON "chanq_orders" (dedup_key) WHERE dedup_key IS NOT NULL;

CREATE TABLE IF NOT EXISTS "main"."chanq_orders_dead" (
  id          BLOB    NOT NULL PRIMARY KEY,
  priority    INTEGER NOT NULL,
  enqueued_at INTEGER NOT NULL,
  ended_at    INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  attempts    INTEGER NOT NULL,
  dedup_key   TEXT,
  last_error  TEXT,
  headers     BLOB,
  body        BLOB    NOT NULL
);

CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_dead_ended" ON "chanq_orders_dead" (ended_at, id);

CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_dead_dedup" ON "chanq_orders_dead" (dedup_key, id) WHERE dedup_key IS NOT NULL;

CREATE TABLE IF NOT EXISTS "main"."chanq_orders_done" (
  id          BLOB    NOT NULL PRIMARY KEY,
  priority    INTEGER NOT NULL,
  enqueued_at INTEGER NOT NULL,
  ended_at    INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  attempts    INTEGER NOT NULL,
  dedup_key   TEXT,
  last_error  TEXT,
  headers     BLOB,
  body        BLOB    NOT NULL
);

CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_done_ended" ON "chanq_orders_done" (ended_at, id);

INSERT INTO "main"."chanq_queues" (name, version, created_at) VALUES ('orders', 1, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)) ON CONFLICT (name) DO NOTHING;
