package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"time"
)

// Other ways to keep the order of each key, as bare loops on one connection. Tables, indexes and
// the reads of the statements are those of the named systems, according to their documentation and
// sources. The text is our own, so that each is one statement without a function around it. Further
// costs of the systems are omitted: functions and the JSON of notifications, and a call for each
// message that is sent or completed.

// orderSystem is a way to keep the order of each key.
type orderSystem struct {
	name, version, note string
	open                func(context.Context, *sql.DB) (orderedQueue, error)
}

var orderSystems = []orderSystem{
	{"chanq", "", "defaults of an ordered queue, by Producer.C, Consumer.C and Ack; its fetches are as large as its buffer has room", openOrderedChanq},
	{"pgmq-grouped", "1.13", "the shape of read_grouped, a batch with as many as there are of the oldest group first; complete deletes by an array of ids", pgmqGrouped.open},
	{"pgmq-grouped-head", "1.13", "the shape of read_grouped_head, one message of each group", pgmqHead.open},
	{"masstransit-partitioned", "c1e5caa9a", "the shape of fetch_messages_partitioned in the mode PartitionedOrdered; sent and completed by the batch, which its own functions do one by one", massTransit.open},
}

func orderNames(of []orderSystem) (names []string) {
	for _, s := range of {
		names = append(names, s.name)
	}
	return names
}

// shape is a way described by SQL. insert takes keys and a body, fetch takes a count and returns
// ids, complete takes ids, and hold takes a count of keys.
type shape struct {
	tables                        []string
	insert, hold, fetch, complete string
}

// pgmqTables are the tables of a queue: pgmq.create, and create_fifo_index, which its documentation
// recommends. https://github.com/pgmq/pgmq, pgmq-extension/sql/pgmq.sql, docs/fifo-queues.md.
var pgmqTables = []string{
	`CREATE TABLE q (
  msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, read_ct integer NOT NULL DEFAULT 0, enqueued_at timestamptz NOT NULL DEFAULT now(),
  last_read_at timestamptz, vt timestamptz NOT NULL, message jsonb, headers jsonb)`,
	`CREATE INDEX ON q (vt)`,
	`CREATE INDEX ON q USING gin (headers)`,
}

const (
	pgmqInsert = `INSERT INTO q (vt, message, headers)
SELECT clock_timestamp(), jsonb_build_object('text', $2::text), jsonb_build_object('x-pgmq-group', k) FROM unnest($1::text[]) AS k`
	pgmqHold = `UPDATE q SET vt = clock_timestamp() + interval '1 hour', read_ct = 1
WHERE msg_id IN (SELECT min(msg_id) FROM q GROUP BY headers->>'x-pgmq-group' ORDER BY 1 LIMIT $1)`
	pgmqComplete = `DELETE FROM q WHERE msg_id = ANY ($1::bigint[]) RETURNING msg_id`
	pgmqGroup    = `coalesce(q.headers->>'x-pgmq-group', '_default_fifo_group')`
	pgmqLease    = ` UPDATE q SET vt = clock_timestamp() + interval '30 seconds', read_ct = q.read_ct + 1, last_read_at = clock_timestamp()
FROM taken AS t WHERE q.msg_id = t.msg_id
RETURNING q.msg_id, q.message, q.headers`
)

// pgmqGrouped takes the first visible message of each group, then the groups without an earlier
// message in processing, then as many visible messages of each as requested, and of all these the
// first, by groups.
var pgmqGrouped = shape{pgmqTables, pgmqInsert, pgmqHold, `WITH heads AS (
  SELECT ` + pgmqGroup + ` AS name, min(q.msg_id) AS head FROM q WHERE q.vt <= clock_timestamp() GROUP BY 1
),
locked AS (
  SELECT q.msg_id AS head, h.name FROM q JOIN heads AS h ON ` + pgmqGroup + ` = h.name AND q.msg_id = h.head
  WHERE q.vt <= clock_timestamp() ORDER BY q.msg_id FOR UPDATE OF q SKIP LOCKED
),
ranked AS (
  SELECT l.name, l.head, row_number() OVER (ORDER BY l.head) AS place FROM locked AS l
),
free AS (
  SELECT r.* FROM ranked AS r
  WHERE NOT EXISTS (SELECT 1 FROM q WHERE ` + pgmqGroup + ` = r.name AND q.vt > clock_timestamp() AND q.msg_id < r.head)
),
found AS (
  SELECT m.msg_id, f.place, row_number() OVER (PARTITION BY f.name ORDER BY m.msg_id) AS nth
  FROM free AS f
  CROSS JOIN LATERAL (SELECT q.msg_id FROM q WHERE ` + pgmqGroup + ` = f.name AND q.vt <= clock_timestamp() ORDER BY q.msg_id LIMIT $1) AS m
  ORDER BY f.place
),
numbered AS (
  SELECT f.msg_id, row_number() OVER (ORDER BY f.place, f.nth) AS n FROM found AS f
),
taken AS (
  SELECT q.msg_id FROM q JOIN numbered AS n ON n.msg_id = q.msg_id WHERE n.n <= $1 ORDER BY q.msg_id FOR UPDATE OF q SKIP LOCKED
)` + pgmqLease, pgmqComplete}

// pgmqHead takes the first message of each group, visible or not, and of these the visible ones.
var pgmqHead = shape{pgmqTables, pgmqInsert, pgmqHold, `WITH heads AS (
  SELECT ` + pgmqGroup + ` AS name, min(q.msg_id) AS head FROM q GROUP BY 1
),
taken AS (
  SELECT h.head AS msg_id FROM heads AS h JOIN q ON q.msg_id = h.head
  WHERE q.vt <= clock_timestamp() ORDER BY q.msg_id LIMIT $1 FOR UPDATE OF q SKIP LOCKED
)` + pgmqLease, pgmqComplete}

// massTransit numbers the messages of each partition key by four windows over the whole queue, and
// takes the first message of each key without a message in processing.
// https://github.com/MassTransit/MassTransit, PostgresDatabaseMigrator.cs, documentation of the SQL
// transport, "Partitioned Queues".
var massTransit = shape{
	[]string{
		`CREATE TABLE message (id uuid PRIMARY KEY, content_type text, body jsonb, headers jsonb, sent_time timestamptz NOT NULL DEFAULT now())`,
		`CREATE TABLE delivery (
  id bigserial PRIMARY KEY, message_id uuid NOT NULL REFERENCES message ON DELETE CASCADE, queue_id bigint NOT NULL, priority smallint NOT NULL,
  enqueue_time timestamptz NOT NULL, expiration_time timestamptz, partition_key text, consumer_id uuid, lock_id uuid,
  delivery_count integer NOT NULL, max_delivery_count integer NOT NULL, last_delivered timestamptz)`,
		`CREATE INDEX ON delivery (queue_id, priority, enqueue_time, id)`,
		`CREATE INDEX ON delivery (queue_id, partition_key, priority, enqueue_time, id)`,
		`CREATE INDEX ON delivery (message_id)`,
	},
	`WITH k AS MATERIALIZED (SELECT gen_random_uuid() AS id, k, o FROM unnest($1::text[]) WITH ORDINALITY AS a (k, o)),
m AS (INSERT INTO message (id, content_type, body) SELECT id, 'application/json', jsonb_build_object('text', $2::text) FROM k)
INSERT INTO delivery (message_id, queue_id, priority, enqueue_time, partition_key, delivery_count, max_delivery_count)
SELECT id, 1, 100, now(), k, 0, 10 FROM k ORDER BY o`,
	`UPDATE delivery SET enqueue_time = now() + interval '1 hour', consumer_id = '` + consumer + `', lock_id = gen_random_uuid(), delivery_count = 1
WHERE id IN (SELECT min(id) FROM delivery GROUP BY partition_key ORDER BY 1 LIMIT $1)`,
	`WITH numbered AS (
  SELECT d.id, d.enqueue_time, d.priority,
    row_number() OVER (PARTITION BY d.partition_key ORDER BY d.priority, d.enqueue_time, d.id) AS by_time,
    row_number() OVER (PARTITION BY d.partition_key ORDER BY d.priority, d.id, d.enqueue_time) AS by_id,
    first_value(CASE WHEN d.enqueue_time > now() THEN d.consumer_id END) OVER latest AS holder,
    sum(CASE WHEN d.enqueue_time > now() AND d.consumer_id = '` + consumer + `' AND d.lock_id IS NOT NULL THEN 1 END) OVER latest AS active
  FROM delivery AS d WHERE d.queue_id = 1 AND d.delivery_count < d.max_delivery_count
  WINDOW latest AS (PARTITION BY d.partition_key ORDER BY d.enqueue_time DESC, d.id DESC)
),
taken AS (
  SELECT d.* FROM delivery AS d
  WHERE d.id IN (
    SELECT n.id FROM numbered AS n
    WHERE n.by_id <= 1 AND n.by_time > 0 AND n.enqueue_time <= now() AND coalesce(n.holder, '` + consumer + `') = '` + consumer + `' AND coalesce(n.active, 0) < 1
    ORDER BY n.priority, n.enqueue_time, n.id LIMIT $1)
  FOR UPDATE OF d SKIP LOCKED
)
UPDATE delivery AS d SET delivery_count = d.delivery_count + 1, last_delivered = now(), consumer_id = '` + consumer + `', lock_id = gen_random_uuid(), enqueue_time = now() + interval '30 seconds'
FROM taken AS t JOIN message AS m ON m.id = t.message_id
WHERE d.id = t.id
RETURNING d.id, m.body, d.partition_key`,
	`WITH d AS (DELETE FROM delivery WHERE id = ANY ($1::bigint[]) RETURNING message_id) DELETE FROM message AS m USING d WHERE m.id = d.message_id`,
}

const consumer = "6c1b7c3e-6d0f-4e6e-8a52-0d8a1f0c9b11" // any value

func (s shape) open(ctx context.Context, db *sql.DB) (orderedQueue, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	for _, text := range s.tables {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return shapedQueue{s, conn}, nil
}

type shapedQueue struct {
	shape
	conn *sql.Conn
}

func (q shapedQueue) send(ctx context.Context, keys []string, body string) error {
	for some := range slices.Chunk(keys, sendRows) {
		if _, err := q.conn.ExecContext(ctx, q.shape.insert, some, body); err != nil {
			return err
		}
	}
	return nil
}

func (q shapedQueue) hold(ctx context.Context, keys int) error {
	_, err := q.conn.ExecContext(ctx, q.shape.hold, keys)
	return err
}

func (q shapedQueue) drain(ctx context.Context, n int, most time.Duration) (done int, fetching time.Duration, err error) {
	for began := time.Now(); done < n && time.Since(began) < most; {
		start := time.Now()
		ids, err := q.take(ctx, min(n-done, fetchRows), 6*most)
		fetching += time.Since(start)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return done, fetching, nil
		}
		if err != nil {
			return done, fetching, err
		}
		if len(ids) == 0 {
			return done, fetching, errors.New("it found nothing before the end")
		}
		if _, err := q.conn.ExecContext(ctx, q.complete, ids); err != nil {
			return done, fetching, err
		}
		done += len(ids)
	}
	return done, fetching, nil
}

func (q shapedQueue) take(ctx context.Context, n int, most time.Duration) (ids []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	rows, err := q.conn.QueryContext(ctx, q.fetch, n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var id int64
	var body, key []byte
	for rows.Next() {
		if err := rows.Scan(&id, &body, &key); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func (q shapedQueue) close(context.Context) error {
	if err := q.conn.Close(); !errors.Is(err, driver.ErrBadConn) { // a cancelled fetch causes this error
		return err
	}
	return nil
}
