package postgres

import (
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Reads by the owners of slots. No row is locked. The index is (seq, slot).

// mostBehind is sqlbatch.MostBehind, and MostWalked.
const mostBehind = `20000`

// readsText are the texts of reads.
type readsText struct {
	read, readKeys, contents, blind, heldKeys, own, give, look string
}

// readHead is of every read: $1 is the member, $2 and $3 are its slots and their fences.
const readHead = `WITH t AS MATERIALIZED (
  SELECT {now} AS now,
         (SELECT count(*) FROM unnest($2::smallint[], $3::bigint[]) AS a (slot, fence)
          JOIN {slots} AS s ON s.queue = {name} AND s.slot = a.slot AND s.fence = a.fence AND s.member = $1::uuid) = cardinality($2::smallint[])
         AND EXISTS (SELECT 1 FROM {members} AS m WHERE m.id = $1::uuid AND m.until > {now})
         AND NOT EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused) AS walked,
         (SELECT redriven FROM {queues} WHERE name = {name}) AS redriven
)`

// mine is a condition on the slot that the planner takes for one that almost all rows meet: $4 has a
// bit for each slot.
const mine = `get_bit($4::bytea, q.slot) <> 0`

// readColumns are those of a row q, with or without its contents.
func readColumns(given string, holds bool) string {
	held := `0`
	if holds {
		held = `CASE WHEN q.order_key IS NOT NULL AND (SELECT 1 FROM {dead} AS d WHERE d.slot = q.slot AND d.order_key = q.order_key LIMIT 1) IS NOT NULL THEN 1 ELSE 0 END`
	}
	content := `CASE WHEN ` + given + ` THEN convert_to(q.dedup_key, {encoding}) END AS dedup_key, CASE WHEN ` + given + ` THEN q.headers END AS headers, CASE WHEN ` + given + ` THEN q.body END AS body`
	if given == "" {
		content, given = noContent, "false"
	}
	return `uuid_send(q.id) AS id, q.priority::integer AS priority, q.fence, q.attempts, q.lapses::integer AS lapses,
  coalesce(q.expires_at <= (SELECT now FROM t), false)::integer AS expired, q.enqueued_at, q.due_at, q.expires_at,
  ` + content + `, q.slot::integer AS slot, q.seq, convert_to(q.order_key, {encoding}) AS order_key,
  greatest(q.due_at - (SELECT now FROM t), CASE WHEN q.leased_by IS DISTINCT FROM $1::uuid THEN q.lease_until - (SELECT now FROM t) END, 0) AS wait,
  CASE WHEN q.leased_by IS NULL THEN 0 WHEN q.leased_by = $1::uuid THEN 1 ELSE 2 END AS holder,
  ` + held + ` AS held, (` + given + `)::integer AS given`
}

// readTail is the last row. The sequence and the locks are read while the statement runs, so after
// its snapshot was taken, and the locks for the row of the number, so after that.
func readTail(last string) string {
	return `SELECT NULL, t.walked::integer, n.drawn, 0, 0, 0, coalesce(t.redriven, 0), ` + last + `, NULL, NULL, NULL, convert_to(coalesce(l.senders, ''), 'UTF8'), 0, 0::bigint, NULL, 0::bigint, 0, 0, 0
FROM t
CROSS JOIN (SELECT ((last_value - CASE WHEN is_called THEN 0 ELSE 1 END + 1) << {seq bits}) - 1 AS drawn FROM {numbers} OFFSET 0) AS n
CROSS JOIN LATERAL (
  SELECT string_agg(CASE WHEN l.virtualtransaction LIKE '-1/%' THEN '` + sqlbatch.UnknownSender + `' ELSE l.virtualtransaction END, ' ') AS senders
  FROM pg_catalog.pg_locks AS l
  WHERE l.locktype = 'advisory' AND l.classid = {senders} AND l.objid = (hashtext({'live'})::bigint & 4294967295)::oid AND l.objsubid = 2
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    AND n.drawn IS NOT NULL) AS l`
}

// behindRead is a range of the index. The planner knows neither its ends nor how many rows are wanted, which it
// takes for a tenth: so it takes the index, whose order is the one asked for, rather than sort.
func behindRead(from, upto string) string {
	return `(q.seq, q.slot) > ((SELECT ` + from + ` FROM b), 32767::smallint) AND q.seq <= (SELECT ` + upto + ` FROM b) AND ` + mine
}

// bounds are the ends and limits of a read.
const bounds = `,
b AS MATERIALIZED (SELECT $5::bigint AS low, $6::bigint AS middle, $7::bigint AS high, $8::integer AS n, ` + mostBehind + `::integer AS most)`

const keyList = `(SELECT convert_from(k.k, 'UTF8') FROM unnest($10::bytea[]) AS k (k))`

func readText(holds bool) string {
	return readHead + bounds + `
(SELECT ` + readColumns("", holds) + `
FROM (SELECT q.* FROM (SELECT q.* FROM {live} AS q WHERE (SELECT walked FROM t) AND ` + behindRead("low", "middle") + ` ORDER BY q.seq LIMIT ` + mostBehind + `) AS q LIMIT (SELECT most FROM b)) AS q)
UNION ALL
(SELECT ` + readColumns("q.give", holds) + `
FROM (
  SELECT q.* FROM (
    SELECT q.*, (q.seq > $9::bigint AND (q.order_key IN ` + keyList + `) IS NOT TRUE) AS give
    FROM {live} AS q WHERE (SELECT walked FROM t) AND ` + behindRead("middle", "high") + ` ORDER BY q.seq LIMIT {rows}) AS q
  LIMIT (SELECT n FROM b)) AS q)
UNION ALL
` + readTail(`9223372036854775807`)
}

// readKeysText walks the index, and finds the rows of the keys among what it has walked.
func readKeysText(holds bool) string {
	return readHead + bounds + `,
w AS MATERIALIZED (
  SELECT q.* FROM (SELECT q.id, q.seq, q.order_key FROM {live} AS q WHERE (SELECT walked FROM t) AND ` + behindRead("low", "high") + ` ORDER BY q.seq LIMIT ` + mostBehind + `) AS q LIMIT (SELECT most FROM b)
),
m AS MATERIALIZED (
  SELECT w.id, w.seq FROM w WHERE w.order_key IN ` + keyList + ` LIMIT (SELECT n FROM b)
)
SELECT ` + readColumns(`q.seq > $9::bigint`, holds) + `
FROM m JOIN {live} AS q ON q.id = ANY (ARRAY[m.id])
UNION ALL
` + readTail(`(SELECT CASE WHEN (SELECT count(*) FROM m) >= (SELECT n FROM b) THEN (SELECT max(seq) FROM m)
   WHEN (SELECT count(*) FROM w) >= `+mostBehind+` THEN (SELECT max(seq) FROM w) ELSE 9223372036854775807 END)`)
}

func contentsText(holds, blind bool) string {
	given := "true"
	if blind {
		given = ""
	}
	return readHead + `
SELECT ` + readColumns(given, holds) + `
FROM unnest((SELECT $4::uuid[])) AS a (id)
JOIN {live} AS q ON q.id = ANY (ARRAY[a.id])
WHERE (SELECT walked FROM t) AND q.slot = ANY ($2::smallint[])
UNION ALL
SELECT NULL, t.walked::integer, 0::bigint, 0, 0, 0, coalesce(t.redriven, 0), 0::bigint, NULL, NULL, NULL, NULL, 0, 0::bigint, NULL, 0::bigint, 0, 0, 0 FROM t`
}

const heldKeysText = `SELECT a.o, CASE WHEN (SELECT 1 FROM {dead} AS d WHERE d.slot = a.slot AND d.order_key = convert_from(a.k, 'UTF8') LIMIT 1) IS NOT NULL THEN 1 ELSE 0 END,
  (SELECT redriven FROM {queues} WHERE name = {name})
FROM unnest($1::smallint[], $2::bytea[]) WITH ORDINALITY AS a (slot, k, o)`

const lastDrawn = `(SELECT ((last_value - CASE WHEN is_called THEN 0 ELSE 1 END + 1) << {seq bits}) - 1 FROM {numbers})`

var ownSlotsText = strings.NewReplacer(
	"SET member = $1::uuid, fence = s.fence + 1",
	`SET member = $1::uuid, fence = greatest(s.fence, {now} << {fence bits}) + $3::bigint, old = CASE WHEN s.member IS NULL THEN s.old ELSE `+lastDrawn+` END`,
	"RETURNING s.slot, s.fence", "RETURNING s.slot, s.fence, s.old").Replace(takeSlotsText)

const returnSlotsText = `UPDATE {slots} AS s
SET member = NULL, old = CASE WHEN a.doubt <> 0 THEN ` + lastDrawn + ` ELSE s.old END
FROM unnest($2::smallint[], $3::bigint[], $4::integer[]) AS a (slot, fence, doubt)
WHERE s.queue = {name} AND s.slot = a.slot AND s.fence = a.fence AND s.member = $1::uuid
RETURNING s.slot, s.fence`

const lookReadText = `SELECT uuid_send(q.id), CASE WHEN q.seq = a.seq THEN q.fence ELSE -1 END
FROM unnest((SELECT $1::uuid[]), (SELECT $2::bigint[])) AS a (id, seq)
JOIN {live} AS q ON q.id = ANY (ARRAY[a.id])`

func newReadsText(r renderer) readsText {
	return readsText{
		read: r.Replace(readText(r.holds)), readKeys: r.Replace(readKeysText(r.holds)),
		contents: r.Replace(contentsText(r.holds, false)), blind: r.Replace(contentsText(r.holds, true)),
		heldKeys: r.Replace(heldKeysText), own: r.Replace(ownSlotsText), give: r.Replace(returnSlotsText), look: r.Replace(lookReadText),
	}
}

// slotsReadText is slotsText without the look at messages, for which there is no index (slot, seq).
const slotsReadText = `SELECT s.slot, uuid_send(s.member) AS owner, CASE WHEN s.member IS NOT NULL THEN coalesce(m.until - {now}, 0) END AS "left", s.fence,
       (SELECT count(*) FROM {members} AS o WHERE o.queue = {name} AND o.until > {now}) AS members, NULL::bigint AS due_in
FROM {slots} AS s
LEFT JOIN {members} AS m ON m.id = s.member
WHERE s.queue = {name} AND ($1::smallint[] IS NULL OR $2::bigint[] IS NULL OR $3::integer[] IS NULL OR true)
ORDER BY s.slot`

func slotMask(parts []sqlbatch.SlotPart) []byte {
	mask := make([]byte, sqlbatch.MaxSlots/8)
	for _, p := range parts {
		mask[p.Slot/8] |= 1 << (p.Slot % 8)
	}
	return mask
}

func packTexts(keys []string) string {
	a := newArray(len(keys), 32)
	for _, s := range keys {
		a.bytes(s)
	}
	return a.literal()
}

func (q *queue) Read(r sqlbatch.SlotRead) sqlbatch.Statement {
	p := packParts(r.Parts)
	return sqlbatch.Statement{Text: q.reads.read, Args: []any{
		hexID(r.Member), p.slots.literal(), p.fences.literal(), slotMask(r.Parts), r.From, r.Cursor, r.Upto, int64(min(r.Rows, maxRows)), r.Old, packTexts(r.Keys),
	}}
}

func (q *queue) ReadKeys(r sqlbatch.KeyRead) sqlbatch.Statement {
	p := packParts(r.Parts)
	return sqlbatch.Statement{Text: q.reads.readKeys, Args: []any{
		hexID(r.Member), p.slots.literal(), p.fences.literal(), slotMask(r.Parts), r.From, int64(0), r.Upto, int64(min(r.Rows, maxRows)), r.Old, packTexts(r.Keys),
	}}
}

func (q *queue) Contents(member [16]byte, parts []sqlbatch.SlotPart, ids [][16]byte, blind bool) sqlbatch.Statement {
	p, text := packParts(parts), q.reads.contents
	if blind {
		text = q.reads.blind
	}
	return sqlbatch.Statement{Text: text, Args: []any{hexID(member), p.slots.literal(), p.fences.literal(), packIDs(ids)}}
}

func (q *queue) HeldKeys(slots []int, keys []string) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reads.heldKeys, Args: []any{packSlots(slots), packTexts(keys)}}
}

func (q *queue) OwnSlots(member [16]byte, salt int64, slots []int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reads.own, Args: []any{hexID(member), packSlots(slots), salt}}
}

func (q *queue) ReturnSlots(member [16]byte, list []sqlbatch.SlotPart) sqlbatch.Statement {
	p, doubts := packParts(list), newArray(len(list), 2)
	for _, part := range list {
		doubts.number(flag(part.Doubt))
	}
	return sqlbatch.Statement{Text: q.reads.give, Args: []any{hexID(member), p.slots.literal(), p.fences.literal(), doubts.literal()}}
}

func flag(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// Settles of what was read. A list has, behind ids and fences, $4: seqs, $5: fences of deliveries.
type readSettles struct{ ack, archive, end, bury, extend, endAfter, mark string }

const (
	readSeq = ` AND q.seq + 0 = ANY (ARRAY[a.seq])`
	// countsNow: a message that was not marked has no attempt of this delivery in its row.
	countsNow = `CASE WHEN q.leased_by IS NULL THEN 1 ELSE 0 END`
)

func newReadSettles(r renderer, l locked) *readSettles {
	list := l.list("seq bigint", "delivery bigint") + readSeq
	three := l.listOf([]string{"a.id", "a.above", "a.seq", "a.delivery", "a.how", "a.delay", "CASE WHEN a.bytes > 0 THEN convert_from(substring($10::bytea FROM a.starts FOR a.bytes), 'UTF8') END AS error"},
		[]string{"seq bigint", "delivery bigint", "how integer", "delay bigint", "starts integer", "bytes integer"}) + readSeq
	extend := func(end string) string {
		return `UPDATE {live} AS q
SET lease_until = least(` + end + `, (SELECT m.until FROM {members} AS m WHERE m.id = $7::uuid)), leased_by = $7::uuid, attempts = least(q.attempts + ` + countsNow + `, {last attempt})
FROM ` + list + ` AND EXISTS (SELECT 1 FROM {members} AS m WHERE m.id = $7::uuid)
RETURNING uuid_send(q.id), q.fence`
	}
	return &readSettles{
		ack: r.Replace(`DELETE FROM {live} AS q
USING ` + l.list("seq bigint") + readSeq + `
RETURNING uuid_send(q.id), q.fence`),
		archive: r.Replace(`WITH gone AS (
  DELETE FROM {live} AS q
  USING ` + l.list("seq bigint") + readSeq + `
  RETURNING q.id, q.priority, q.enqueued_at, q.fence, q.attempts + ` + countsNow + ` AS attempts, q.dedup_key, q.last_error, q.headers, q.body{q.order}
)
INSERT INTO {done} AS d (id, priority, enqueued_at, ended_at, fence, attempts, dedup_key, last_error, headers, body{order})
SELECT id, priority, enqueued_at, {now}, fence, attempts, dedup_key, last_error, headers, body{order}
FROM gone
` + replace + `
RETURNING uuid_send(d.id), d.fence`),
		end: r.Replace(`UPDATE {live} AS q
SET due_at = CASE WHEN a.how < 2 THEN {now} + a.delay ELSE q.due_at END, lease_until = 0, fence = CASE WHEN q.fence > {high fence} THEN a.delivery ELSE greatest(q.fence, a.delivery) END + 1,
    attempts = least({last attempt}, greatest(0, q.attempts + ` + countsNow + ` - CASE a.how WHEN 0 THEN q.lapses WHEN 1 THEN q.lapses + 1 WHEN 2 THEN 1 ELSE 0 END)),
    lapses = CASE a.how WHEN 2 THEN q.lapses WHEN 3 THEN least(q.lapses + 1, {last lapse}) ELSE 0 END, leased_by = NULL, last_error = coalesce(a.error, q.last_error)
FROM ` + three + `
RETURNING uuid_send(q.id), q.fence`),
		bury: r.Replace(`WITH gone AS (
  DELETE FROM {live} AS q
  USING ` + three + `
  RETURNING q.id, q.priority, q.enqueued_at, q.fence, a.delivery, q.attempts + ` + countsNow + ` - a.how AS attempts, q.dedup_key, q.headers, q.body,
            coalesce(a.error, q.last_error) AS last_error{q.order}
),
dead AS (
  INSERT INTO {dead} AS d (id, priority, enqueued_at, ended_at, fence, attempts, dedup_key, last_error, headers, body{order})
  SELECT id, priority, enqueued_at, {now}, CASE WHEN fence > {high fence} THEN delivery ELSE greatest(fence, delivery) END + 1, attempts, dedup_key, last_error, headers, body{order}
  FROM gone
  ` + replace + `
)
SELECT uuid_send(id), fence FROM gone`),
		extend:   r.Replace(extend(`greatest(q.lease_until, {now} + $6::bigint)`)),
		endAfter: r.Replace(extend(`{now} + $6::bigint`)),
		mark: r.Replace(`UPDATE {live} AS q
SET fence = CASE WHEN q.fence > {high fence} THEN a.delivery ELSE greatest(q.fence + 1, a.delivery) END, attempts = least(q.attempts + 1, {last attempt}), lapses = least(q.lapses + CASE WHEN q.leased_by <> $7::uuid THEN 1 ELSE 0 END, {last lapse}), leased_by = $7::uuid
FROM ` + list + ` AND q.lapses + CASE WHEN q.leased_by <> $7::uuid THEN 1 ELSE 0 END < $6::integer
RETURNING uuid_send(q.id), q.fence`),
	}
}

// readList is the lists of a settle of what was read.
type readList struct {
	ends
	seqs, deliveries, hows array
}

func newReadList(n int) *readList {
	return &readList{ends: newEnds(n), seqs: newArray(n, 19), deliveries: newArray(n, 19), hows: newArray(n, 2)}
}

func (l *readList) item(i sqlbatch.ReadItem) {
	l.add(i.Item)
	l.seqs.number(i.Seq)
	l.deliveries.number(i.Delivery)
}

func compareRead(a, b sqlbatch.ReadItem) int { return compareLeases(a.Item, b.Item) }

func packRead(items []sqlbatch.ReadItem) *readList {
	l := newReadList(len(items))
	for _, i := range sortedBy(items, compareRead) {
		l.item(i)
	}
	return l
}

func (q *queue) AckRead(items []sqlbatch.ReadItem) sqlbatch.Statement {
	l := packRead(items)
	return sqlbatch.Statement{Text: q.settle.read.ack, Args: l.args(l.seqs.literal())}
}

func (q *queue) ArchiveRead(items []sqlbatch.ReadItem) sqlbatch.Statement {
	l := packRead(items)
	return sqlbatch.Statement{Text: q.settle.read.archive, Args: l.args(l.seqs.literal())}
}

func (q *queue) EndRead(items []sqlbatch.ReadEnd) sqlbatch.Statement {
	l := newReadList(len(items))
	for _, i := range sortedBy(items, func(a, b sqlbatch.ReadEnd) int { return compareRead(a.ReadItem, b.ReadItem) }) {
		l.item(i.ReadItem)
		l.note(i.Error)
		l.hows.number(int64(i.How))
		l.numbers.number(build.Milliseconds(i.Delay))
	}
	return l.statement(q.settle.read.end)
}

func (q *queue) BuryRead(items []sqlbatch.ReadBury) sqlbatch.Statement {
	l := newReadList(len(items))
	for _, i := range sortedBy(items, func(a, b sqlbatch.ReadBury) int { return compareRead(a.ReadItem, b.ReadItem) }) {
		l.item(i.ReadItem)
		l.note(i.Error)
		l.hows.number(flag(i.Uncounted))
		l.numbers.number(0)
	}
	return l.statement(q.settle.read.bury)
}

func (l *readList) statement(text string) sqlbatch.Statement {
	at, length := l.errors.place()
	return sqlbatch.Statement{Text: text, Args: l.args(l.seqs.literal(), l.deliveries.literal(), l.hows.literal(), l.numbers.literal(), at, length, l.errors.data)}
}

func (q *queue) ExtendRead(member [16]byte, items []sqlbatch.ReadItem, lease time.Duration) sqlbatch.Statement {
	l := packRead(items)
	return sqlbatch.Statement{Text: q.settle.read.extend, Args: l.args(l.seqs.literal(), l.deliveries.literal(), build.Milliseconds(lease), hexID(member))}
}

func (q *queue) EndAfterRead(member [16]byte, items []sqlbatch.ReadItem, lease time.Duration) sqlbatch.Statement {
	l := packRead(items)
	return sqlbatch.Statement{Text: q.settle.read.endAfter, Args: l.args(l.seqs.literal(), l.deliveries.literal(), build.Milliseconds(lease), hexID(member))}
}

func (q *queue) Mark(member [16]byte, items []sqlbatch.ReadItem, lapses int) sqlbatch.Statement {
	l := packRead(items)
	return sqlbatch.Statement{Text: q.skips.settle.read.mark, Args: l.args(l.seqs.literal(), l.deliveries.literal(), int64(min(lapses, 40_000)), hexID(member))}
}

func (q *queue) LookRead(items []sqlbatch.ReadItem) sqlbatch.Statement {
	ids, seqs := newArray(len(items), 32), newArray(len(items), 19)
	for _, i := range sortedBy(items, compareRead) {
		ids.id(i.ID)
		seqs.number(i.Seq)
	}
	return sqlbatch.Statement{Text: q.reads.look, Args: []any{ids.literal(), seqs.literal()}}
}
