INSERT INTO "public"."chanq__queues" (name, version, created_at, slots, holds, shard, shards, shard_set) VALUES ('orders', $1::integer, (extract(epoch FROM statement_timestamp()) * 1000)::bigint, 0, 0, 0, 0, '')
ON CONFLICT (name) DO UPDATE SET version = excluded.version, holds = excluded.holds;
