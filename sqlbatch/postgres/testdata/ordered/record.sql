INSERT INTO "public"."chanq__queues" AS s (name, version, created_at, kind, slots, shard, shards, shard_set, holds, max_keys, max_attempts, max_body, retain_ms, retain_dead_ms)
VALUES ('orders', $1::integer, (extract(epoch FROM statement_timestamp()) * 1000)::bigint, 2, 4, 0, 0, '', $2::smallint, $3::integer, $4::integer, $5::integer, $6::bigint, $7::bigint)
ON CONFLICT (name) DO UPDATE SET version = greatest(s.version, excluded.version),
  holds = excluded.holds, max_keys = excluded.max_keys, max_attempts = excluded.max_attempts, max_body = excluded.max_body,
  retain_ms = excluded.retain_ms, retain_dead_ms = excluded.retain_dead_ms;
