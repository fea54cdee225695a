package postgres

import (
	"strconv"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
)

// Reads of an ordered queue by the owners of its slots. No row is locked. The index is (seq, slot).

// readHead begins a read by consumer $1 of the slots $2 with the fences $3.
const readHead = `WITH t AS MATERIALIZED (
  SELECT {now} AS now,
         (SELECT count(*) FROM unnest($2::smallint[], $3::bigint[]) AS a (slot, fence)
          JOIN {slots} AS s ON s.queue = {name} AND s.slot = a.slot AND s.fence = a.fence AND s.consumer = $1::uuid) = cardinality($2::smallint[])
         AND EXISTS (SELECT 1 FROM {consumers} AS m WHERE m.id = $1::uuid AND m.until > {now})
         AND NOT EXISTS (SELECT 1 FROM {queues} WHERE name = {name} AND paused) AS walked,
         (SELECT redriven FROM {queues} WHERE name = {name}) AS redriven
)`

// bounds are the ends and the limits of a read.
const bounds = `,
b AS MATERIALIZED (SELECT $5::bigint AS low, $6::bigint AS middle, $7::bigint AS high, $8::integer AS n, $12::integer AS behind)`

// inRange is a range of the index, of the slots for which $4 has a bit. The planner knows neither the ends of the range nor the number of
// rows that the outer limit wants, which it estimates as a tenth. It takes the mask for a condition that almost all rows meet. Therefore it
// reads the index, which has the requested order, and does not sort.
func inRange(from, upto string) string {
	return `(q.seq, q.slot) > ((SELECT ` + from + ` FROM b), 32767::smallint) AND q.seq <= (SELECT ` + upto + ` FROM b) AND get_bit($4::bytea, q.slot) <> 0`
}

const (
	marked     = `q.leased_by IS NOT DISTINCT FROM $1::uuid` // by the consumer
	lapsedThen = `least(q.lapses + CASE WHEN q.leased_by IS NULL OR q.leased_by = $1::uuid THEN 0 ELSE 1 END, {last lapse})`
	keyList    = `(SELECT convert_from(k.k, 'UTF8') FROM unnest($10::bytea[]) AS k (k))`

	// givenAbove is the condition on rows that a read returns with their contents.
	givenAbove = `q.seq > $9::bigint AND octet_length(q.body) <= $11::integer`
)

// readColumns returns the columns of a row q. given is a condition on rows with their contents, "" for none.
func readColumns(given, locked string) string {
	contents := `NULL::bytea AS dedup_key, NULL::text AS type, NULL::bytea AS headers, NULL::bytea AS body`
	if given == "" {
		given = "false"
	} else {
		contents = `CASE WHEN ` + given + ` THEN convert_to(q.dedup_key, {encoding}) END AS dedup_key, CASE WHEN ` + given + ` THEN q.type END AS type, CASE WHEN ` + given + ` THEN q.headers END AS headers, CASE WHEN ` + given + ` THEN q.body END AS body`
	}
	return `uuid_send(q.id) AS id, q.priority::integer AS priority, q.fence,
  least(q.attempts + CASE WHEN ` + marked + ` THEN 0 ELSE 1 END, {last attempt}) AS attempts, ` + lapsedThen + ` AS lapses,
  coalesce(q.expires_at <= (SELECT now FROM t), false)::integer AS expired, q.enqueued_at, q.due_at, q.expires_at,
  ` + contents + `, octet_length(q.body) AS size, q.slot::integer AS slot, q.seq, convert_to(q.order_key, {encoding}) AS order_key,
  greatest(q.due_at - (SELECT now FROM t), CASE WHEN ` + marked + ` THEN 0 ELSE q.lease_until - (SELECT now FROM t) END, 0) AS wait,
  CASE WHEN q.expires_at IS NULL THEN 0 ELSE greatest(q.expires_at - (SELECT now FROM t), 1) END AS lives,
  CASE WHEN q.leased_by IS NULL THEN 0 WHEN q.leased_by = $1::uuid THEN 1 ELSE 2 END AS holder,
  ` + heldOfQ + ` AS held,
  (` + given + `)::integer AS given, ` + locked + ` AS locked`
}

// holds is 1 if dead messages hold their keys, and heldOfQ if one holds the key of q.
const (
	holds   = `(SELECT holds FROM {queues} WHERE name = {name})`
	heldOfQ = `CASE WHEN q.order_key IS NOT NULL AND ` + holds + ` = 1 AND (SELECT 1 FROM {dead} AS d WHERE d.slot = q.slot AND d.order_key = q.order_key LIMIT 1) IS NOT NULL THEN 1 ELSE 0 END`
)

// lastDrawn reads the current value of a sequence, whatever the snapshot. A number stands for a statement: it is its last seq.
const (
	lastDrawn  = `(SELECT ` + drawnByNow + `)`
	drawnByNow = `((last_value - CASE WHEN is_called THEN 0 ELSE 1 END + 1) << {seq bits}) - 1 AS drawn FROM {numbers}`
)

// readEnd is the last row of an answer.
func readEnd(fence, upto, senders, from string) string {
	return `SELECT NULL, t.walked::integer, ` + fence + `, 0, 0, 0, coalesce(t.redriven, 0), ` + upto + `, NULL, NULL, NULL, NULL, ` + senders + `, 0, 0, 0::bigint, NULL, 0::bigint, 0::bigint, 0, 0, 0, 0
FROM t` + from
}

// sampled is the end of an answer with the number and the senders. PostgreSQL reads the sequence and the locks while the statement runs,
// and therefore after its snapshot. It reads the locks for the row of the number, and therefore after the number. A sender held the lock of
// senders before it drew its number, and holds it until its messages are visible. A transaction that is prepared, for a two-phase commit,
// loses the name that it had.
func sampled(upto string) string {
	return readEnd("n.drawn", upto, `convert_to(coalesce(l.senders, ''), 'UTF8')`, `
CROSS JOIN (SELECT `+drawnByNow+` OFFSET 0) AS n
CROSS JOIN LATERAL (
  SELECT string_agg(CASE WHEN l.virtualtransaction LIKE '-1/%' THEN '`+sqlbatch.UnknownSender+`' ELSE l.virtualtransaction END, ' ') AS senders
  FROM pg_catalog.pg_locks AS l
  WHERE l.locktype = 'advisory' AND l.classid = {senders} AND l.objid = (hashtext({'live'})::bigint & 4294967295)::oid AND l.objsubid = 2
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    AND n.drawn IS NOT NULL) AS l`)
}

const atEnd = `9223372036854775807`

// readText reads two ranges of the index. The planner knows the inner limits, and the outer ones bound the answer. The one above the cursor
// leaves out the rows of the keys, but not the last one of those that it may walk: it is looked for only if a row of the keys is met.
func readText() string {
	above := inRange("greatest(low, middle)", "high")
	return readHead + bounds + `
(SELECT ` + readColumns("", "0") + `
FROM (SELECT q.* FROM (SELECT q.* FROM {live} AS q WHERE (SELECT walked FROM t) AND ` + inRange("low", "least(middle, high)") + ` ORDER BY q.seq LIMIT ` + mostWalked + `) AS q LIMIT (SELECT behind FROM b)) AS q)
UNION ALL
(SELECT ` + readColumns("q.give", "0") + `
FROM (
  SELECT q.* FROM (
    SELECT q.*, (` + givenAbove + `) AS give
    FROM {live} AS q WHERE (SELECT walked FROM t) AND ` + above + ` ORDER BY q.seq LIMIT ` + mostWalked + `) AS q
  WHERE (q.order_key IN ` + keyList + `) IS NOT TRUE
    OR q.seq = (SELECT l.seq FROM (SELECT q.seq FROM {live} AS q WHERE ` + above + ` ORDER BY q.seq LIMIT ` + mostWalked + `) AS l
      LIMIT 1 OFFSET (SELECT ` + mostWalked + ` - 1))
  LIMIT (SELECT n FROM b)) AS q)
UNION ALL
` + sampled(atEnd)
}

var mostWalked = strconv.Itoa(sqlbatch.MostWalked)

// refillText walks the index, and finds the rows of the keys among the rows that it has walked, in their order. IS TRUE keeps the planner from
// making the condition a join, which returns rows in another order: the limit would then leave out rows before those that it keeps.
func refillText() string {
	return readHead + bounds + `,
w AS MATERIALIZED (
  SELECT q.* FROM (SELECT q.id, q.seq, q.order_key FROM {live} AS q WHERE (SELECT walked FROM t) AND ` + inRange("low", "high") + ` ORDER BY q.seq LIMIT ` + mostWalked + `) AS q LIMIT (SELECT behind FROM b)
),
m AS MATERIALIZED (
  SELECT w.id, w.seq FROM w WHERE (w.order_key IN ` + keyList + `) IS TRUE LIMIT (SELECT n FROM b)
)
SELECT ` + readColumns(givenAbove, "0") + `
FROM m JOIN {live} AS q ON q.id = ANY (ARRAY[m.id])
UNION ALL
` + sampled(`(SELECT CASE WHEN (SELECT count(*) FROM m) >= (SELECT n FROM b) THEN coalesce((SELECT max(seq) FROM m), (SELECT low FROM b))
   WHEN (SELECT count(*) FROM w) >= (SELECT behind FROM b) THEN (SELECT max(seq) FROM w) ELSE `+atEnd+` END)`)
}

// fetchText finds the rows of a list by the primary key. For rows without contents it also reports locks: xmax of such a row is the
// transaction that has changed or locked it last, which holds a lock on its own number while it runs. A row counts as free if a released
// savepoint has locked it, or several transactions that share it: the write that follows skips it.
func fetchText(contents bool) string {
	given, locks, locked := "true", "", "0"
	if !contents {
		given, locks = "", `,
l AS MATERIALIZED (SELECT l.transactionid::text AS number FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'transactionid')`
		locked = `CASE WHEN q.xmax::text IN (SELECT number FROM l) THEN 1 ELSE 2 END`
	}
	return readHead + locks + `
SELECT ` + readColumns(given, locked) + `
FROM unnest((SELECT $4::uuid[])) AS a (id)
JOIN {live} AS q ON q.id = ANY (ARRAY[a.id])
WHERE (SELECT walked FROM t) AND get_bit($5::bytea, q.slot) <> 0
UNION ALL
` + readEnd("0::bigint", "0::bigint", "NULL", "")
}

const heldKeysText = `SELECT a.o, CASE WHEN ` + holds + ` = 1 AND (SELECT 1 FROM {dead} AS d WHERE d.slot = a.slot AND d.order_key = convert_from(a.k, 'UTF8') LIMIT 1) IS NOT NULL THEN 1 ELSE 0 END AS held,
  (SELECT redriven FROM {queues} WHERE name = {name}) AS redriven
FROM unnest($1::smallint[], $2::bytea[]) WITH ORDINALITY AS a (slot, k, o)`

func (t *texts) readers(r renderer) {
	t.read, t.refill, t.fetch, t.lookOrdered = r.Replace(readText()), r.Replace(refillText()), r.Replace(fetchText(true)), r.Replace(fetchText(false))
	t.heldKeys = r.Replace(heldKeysText)
}

// slotMask has a bit for each of the slots.
func slotMask(slots []sqlbatch.OwnedSlot) []byte {
	mask := make([]byte, sqlbatch.MaxSlots/8)
	for _, s := range slots {
		mask[s.Slot/8] |= 1 << (s.Slot % 8)
	}
	return mask
}

// packOwned packs the slots and their fences.
func packOwned(list []sqlbatch.OwnedSlot) (slots, fences string) {
	s, f := newArray(len(list), 4), newArray(len(list), 19)
	for _, own := range list {
		s.number(int64(own.Slot))
		f.number(own.Fence)
	}
	return s.literal(), f.literal()
}

// packTexts packs as packKeys does, in the order of the list.
func packTexts(keys []string) string {
	a := newArray(len(keys), 32)
	for _, s := range keys {
		a.bytes(s)
	}
	return a.literal()
}

func (q *queue) Read(r sqlbatch.ReadParams) sqlbatch.Statement {
	slots, fences := packOwned(r.Slots)
	return sqlbatch.Statement{Text: q.read, Args: []any{
		hexID(r.Consumer), slots, fences, slotMask(r.Slots), r.From, r.Cursor, r.Upto, int64(min(r.Rows, maxRows)), r.Old, packTexts(r.Keys), int64(r.Inline), int64(min(r.Behind, sqlbatch.MostWalked)),
	}}
}

func (q *queue) Refill(r sqlbatch.ReadParams) sqlbatch.Statement {
	slots, fences := packOwned(r.Slots)
	return sqlbatch.Statement{Text: q.refill, Args: []any{
		hexID(r.Consumer), slots, fences, slotMask(r.Slots), r.From, r.From, r.Upto, int64(min(r.Rows, maxRows)), r.Old, packTexts(r.Keys), int64(r.Inline), int64(sqlbatch.MostWalked),
	}}
}

func (q *queue) Fetch(consumer [16]byte, slots []sqlbatch.OwnedSlot, ids [][16]byte) sqlbatch.Statement {
	return byIDs(q.fetch, consumer, slots, ids)
}

func (q *queue) LookOrdered(consumer [16]byte, slots []sqlbatch.OwnedSlot, ids [][16]byte) sqlbatch.Statement {
	return byIDs(q.lookOrdered, consumer, slots, ids)
}

func byIDs(text string, consumer [16]byte, list []sqlbatch.OwnedSlot, ids [][16]byte) sqlbatch.Statement {
	slots, fences := packOwned(list)
	return sqlbatch.Statement{Text: text, Args: []any{hexID(consumer), slots, fences, packIDs(ids), slotMask(list)}}
}

func (q *queue) HeldKeys(slots []int, keys []string) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.heldKeys, Args: []any{packSlots(slots), packTexts(keys)}}
}

// Settles of an ordered queue. A list has the fences of the deliveries in $4.

const (
	// unwritten is the attempt of a delivery that is not in the row.
	unwritten = `CASE WHEN q.leased_by IS NULL THEN 1 ELSE 0 END`

	// fenceAfter is the fence after a delivery: see sqlbatch.NackItem.
	fenceAfter = `CASE WHEN q.fence > {high fence} THEN a.delivery ELSE greatest(q.fence, a.delivery) END + 1`
)

// orderedNackText is nackText of an ordered queue.
func orderedNackText(l locked, attempts, history string) string {
	return `UPDATE {live} AS q
SET due_at = {now} + coalesce(a.delay, 0), lease_until = 0, fence = ` + fenceAfter + `, attempts = least(q.attempts + ` + unwritten + `, {last attempt}) - ` + attempts + `, lapses = 0, leased_by = NULL, last_error = coalesce(a.error, q.last_error), history = ` + history + `
FROM ` + l.deliveryList("delay bigint", "took bigint") + `
RETURNING uuid_send(q.id), a.stored`
}

// deliveryList is errorList with the fences of the deliveries and of the rows.
func (l locked) deliveryList(columns ...string) string {
	columns = append([]string{"delivery bigint"}, columns...)
	return l.listOf(withError([]string{"a.id", "a.above", "$2::bigint + coalesce(a.above, 0) AS stored"}, columns), append(columns, "starts integer", "bytes integer"))
}

func orderedReleaseText(l locked) string {
	return `UPDATE {live} AS q
SET lease_until = 0, fence = ` + fenceAfter + `, attempts = q.attempts + ` + unwritten + ` - 1, leased_by = NULL
FROM ` + l.listOf([]string{"a.id", "a.above", "a.delivery", "$2::bigint + coalesce(a.above, 0) AS stored"}, []string{"delivery bigint"}) + `
RETURNING uuid_send(q.id), a.stored`
}

func orderedDeadLetterText(l locked) string {
	return `WITH gone AS (
  DELETE FROM {live} AS q
  USING ` + l.deliveryList(deadLetterColumns...) + `
  RETURNING q.id, q.priority, q.enqueued_at, ` + deadLettered + `, q.fence, ` + fenceAfter + ` AS after, least(q.attempts + ` + unwritten + `, {last attempt}) - (coalesce(a.ended, 0) & 1) AS attempts, q.dedup_key, q.type, q.headers, q.body,
            ` + deadLetteredError + `{q.order}
),
dead AS (
  INSERT INTO {dead} AS d (id, priority, enqueued_at, ended_at, cause, fingerprint, fence, attempts, dedup_key, type, last_error, history, headers, body{order})
  SELECT id, priority, enqueued_at, {now}, cause, fingerprint, after, attempts, dedup_key, type, last_error, ` + afterDeath + `, headers, body{order}
  FROM gone AS q
  ` + replace + replaceCause + `
)
SELECT uuid_send(id), fence FROM gone`
}

// orderedExtendText notes the holder, and counts the attempt the first time. No lease ends after the membership, so that no lease of a
// former owner is valid when another consumer takes the slot. The lease of a consumer without a row keeps its end.
func orderedExtendText(l locked) string {
	return `UPDATE {live} AS q
SET lease_until = least(greatest(q.lease_until, {now} + $4::bigint), coalesce((SELECT m.until FROM {consumers} AS m WHERE m.id = coalesce(q.leased_by, $5::uuid)), q.lease_until)),
    attempts = least(q.attempts + ` + unwritten + `, {last attempt}), leased_by = coalesce(q.leased_by, $5::uuid)
FROM ` + l.list() + `
RETURNING uuid_send(q.id), q.fence`
}

// another: a consumer other than $5 has marked the message.
const another = `CASE WHEN q.leased_by <> $5::uuid THEN 1 ELSE 0 END`

var markOrderedText = `UPDATE {live} AS q
SET fence = CASE WHEN q.fence > {high fence} THEN a.slot_fence ELSE greatest(q.fence + 1, a.slot_fence) END, attempts = least(q.attempts + 1, {last attempt}),
    lapses = least(q.lapses + ` + another + `, {last lapse}), leased_by = $5::uuid,
    history = CASE WHEN q.leased_by <> $5::uuid THEN ` + expired(`{now}`, `0`, `q.leased_by`) + ` ELSE q.history END
FROM ` + skips.list("slot_fence bigint") + `
RETURNING uuid_send(q.id), q.fence, q.lapses`

// $6 is 1 if a lease has expired.
var releaseOrderedText = `UPDATE {live} AS q
SET fence = ` + fenceAfter + `,
    attempts = least(CASE WHEN $6::integer = 1 THEN q.attempts + ` + unwritten + ` WHEN q.leased_by = $5::uuid THEN q.attempts - 1 ELSE q.attempts END, {last attempt}),
    lapses = least(q.lapses + $6::integer, {last lapse}),
    lease_until = CASE WHEN ` + staysMarked + ` THEN q.lease_until ELSE 0 END,
    leased_by = CASE WHEN ` + staysMarked + ` THEN q.leased_by END,
    history = CASE WHEN $6::integer = 1 THEN ` + expired(`{now}`, `0`, `$5::uuid`) + ` ELSE q.history END
FROM ` + skips.list("delivery bigint") + `
RETURNING uuid_send(q.id), q.fence, least(q.lapses + ` + another + `, {last lapse})`

const staysMarked = `$6::integer = 0 AND q.leased_by <> $5::uuid`

// order replaces the settles that differ on an ordered queue.
func (s *settles) order(r renderer, l locked) {
	s.archive = r.Replace(strings.Replace(archiveText(l), "q.attempts,", "least(q.attempts + "+unwritten+", {last attempt}) AS attempts,", 1))
	s.nack, s.snooze = r.Replace(orderedNackText(l, "q.lapses", failed("a"))), r.Replace(orderedNackText(l, "q.lapses - 1", kept))
	s.release, s.deadLetter, s.extend = r.Replace(orderedReleaseText(l)), r.Replace(orderedDeadLetterText(l)), r.Replace(orderedExtendText(l))
}

// packMarks packs leases with a second fence for each.
func packMarks[T any](items []T, split func(T) (sqlbatch.Item, int64)) (l *ends, others string) {
	l = newEnds(len(items))
	fences := newArray(len(items), 19)
	for _, i := range sortedBy(items, func(a, b T) int {
		x, _ := split(a)
		y, _ := split(b)
		return compareLeases(x, y)
	}) {
		item, fence := split(i)
		l.add(item)
		fences.number(fence)
	}
	return l, fences.literal()
}

func deliveryOf(i sqlbatch.ReleaseItem) (sqlbatch.Item, int64) { return i.Item, i.Delivery }

func (q *queue) MarkOrdered(consumer [16]byte, items []sqlbatch.MarkItem) sqlbatch.Statement {
	l, fences := packMarks(items, func(i sqlbatch.MarkItem) (sqlbatch.Item, int64) { return i.Item, i.SlotFence })
	return sqlbatch.Statement{Text: q.markOrdered, Args: l.args(fences, hexID(consumer))}
}

func (q *queue) ReleaseOrdered(consumer [16]byte, items []sqlbatch.ReleaseItem, lapsed bool) sqlbatch.Statement {
	l, fences := packMarks(items, deliveryOf)
	return sqlbatch.Statement{Text: q.releaseOrdered, Args: l.args(fences, hexID(consumer), flag(lapsed))}
}

func flag(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
