package sqlite

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Reads of an ordered queue by the owners of its slots. A number is the rowid. One writer at a time makes all numbers
// visible in their order, so there are no senders.

// walkedNow is whether ?1 is alive and owns the ?3 slots of ?2 by their fences, and the queue is not paused.
const walkedNow = `((SELECT count(*) FROM ` + ownedList + ` AS p
  CROSS JOIN {slots} AS s ON s.queue = {name} AND s.slot = p.slot AND s.fence = p.fence AND s.consumer = ?1) = ?3
  AND EXISTS (SELECT 1 FROM {consumers} AS m WHERE m.id = ?1 AND ` + alive + `) AND NOT ` + paused + `)`

// A list of slots: record = slot 4, fence 19, doubt 1.
const (
	ownedSize = 4 + 19 + 1

	ownedList = `(
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 24 FROM n WHERE o + 24 < length(?2))
    SELECT CAST(substr(?2, o, 4) AS INTEGER) AS slot, CAST(substr(?2, o + 4, 19) AS INTEGER) AS fence, substr(?2, o + 23, 1) = x'31' AS doubt FROM n WHERE length(?2) > 1)`
)

func packOwned(slots []sqlbatch.OwnedSlot) []byte {
	list := make([]byte, 0, len(slots)*ownedSize+1)
	for _, s := range slots {
		list = appendDigits(appendDigits(appendDigits(list, int64(s.Slot), 4), s.Fence, 19), flag(s.Doubt), 1)
	}
	return orNone(list)
}

func flag(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// bodySize is known without the pages of the body.
var bodySize = strings.ReplaceAll(bytesOf("body"), "body", "q.body")

// givenAbove is the condition on rows that a read returns with their contents.
var givenAbove = `q.seq > ?8 AND ` + bodySize + ` <= ?10`

const (
	lapsedThen = `min(q.lapses + (q.leased_by IS NOT NULL AND q.leased_by <> ?1), {last lapse})`
	keyList    = `(SELECT k.value FROM json_each(?9) AS k)`

	// inMask: ?4 has a digit for each slot.
	inMask = `substr(?4, q.slot + 1, 1) = '1'`
)

// readColumns returns the columns of a row q. given is a condition on rows with their contents.
func readColumns(given string) string {
	return `q.id, q.priority, q.fence, min(q.attempts + (q.leased_by IS NOT ?1), {last attempt}) AS attempts, ` + lapsedThen + ` AS lapses, coalesce(q.expires_at <= t.now, 0) AS expired, q.enqueued_at, q.due_at, q.expires_at,
  CASE WHEN ` + given + ` THEN q.dedup_key END AS dedup_key, CASE WHEN ` + given + ` THEN q.type END AS type, CASE WHEN ` + given + ` THEN q.headers END AS headers, CASE WHEN ` + given + ` THEN q.body END AS body, ` + bodySize + ` AS size,
  q.slot, q.seq, q.order_key, max(q.due_at - t.now, iif(q.leased_by IS ?1, 0, q.lease_until - t.now), 0) AS wait, iif(q.expires_at IS NULL, 0, max(q.expires_at - t.now, 1)) AS lives,
  CASE WHEN q.leased_by IS NULL THEN 0 WHEN q.leased_by = ?1 THEN 1 ELSE 2 END AS holder, ` + heldOfQ + ` AS held,
  (` + given + `) AS given, 0 AS locked`
}

// holds is whether dead messages hold their keys, and heldOfQ whether one holds the key of q.
const (
	holds   = `(SELECT holds FROM {queues} WHERE name = {name})`
	heldOfQ = `CASE WHEN q.order_key IS NOT NULL AND ` + holds + ` AND EXISTS (SELECT 1 FROM {dead} AS d WHERE d.slot = q.slot AND d.order_key = q.order_key) THEN 1 ELSE 0 END`
)

const lastDrawn = `coalesce((SELECT z.seq FROM {sequence} AS z WHERE z.name = {live_text}), 0)`

// readEnd is the last row of an answer.
func readEnd(upto string) string {
	return `SELECT NULL, t.walked, ` + lastDrawn + `, 0, 0, 0, (SELECT redriven FROM {queues} WHERE name = {name}), ` + upto + `, NULL, NULL, NULL, NULL, x'', 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0 FROM t`
}

const (
	readHead = `WITH t AS MATERIALIZED (SELECT {now} AS now, ` + walkedNow + ` AS walked)`
	inRange  = `SELECT q.seq FROM {live} AS q WHERE q.seq > {from} AND q.seq <= {upto} AND ` + inMask + ` ORDER BY q.seq LIMIT `
	atEnd    = `9223372036854775807`
)

func rangeOf(from, upto, limit string) string {
	return strings.NewReplacer("{from}", from, "{upto}", upto).Replace(inRange) + limit
}

// rangeAbove is the range above the cursor without the rows of the keys, of the first rows that it walks. The last of these is in it: the
// read ends there. It is looked for only if a row of the keys is met.
func rangeAbove() string {
	const above = ` FROM {live} AS q WHERE q.seq > max(?5, ?6) AND q.seq <= ?11 AND ` + inMask + ` ORDER BY q.seq`
	return `SELECT e.seq FROM (SELECT q.seq, q.order_key` + above + ` LIMIT ` + mostWalked + `) AS e
  WHERE (e.order_key IN ` + keyList + `) IS NOT 1 OR e.seq = (SELECT q.seq` + above + ` LIMIT 1 OFFSET ` + mostWalked + ` - 1) LIMIT ?7 + 0`
}

var mostWalked = strconv.Itoa(sqlbatch.MostWalked)

// readText reads two ranges of rowids. It chooses rows without reading their contents, which might be in other pages.
func readText() string {
	return readHead + `
SELECT ` + readColumns(`0`) + `
FROM t CROSS JOIN (` + rangeOf("?5", "min(?6, ?11)", "?12 + 0") + `) AS w CROSS JOIN {live} AS q ON q.seq = w.seq
WHERE t.walked
UNION ALL
SELECT ` + readColumns(givenAbove) + `
FROM t CROSS JOIN (` + rangeAbove() + `) AS w CROSS JOIN {live} AS q ON q.seq = w.seq
WHERE t.walked
UNION ALL
` + readEnd(atEnd)
}

// refillText walks rowids, and finds the rows of the keys among the rows that it has walked.
func refillText() string {
	return readHead + `,
w AS MATERIALIZED (` + rangeOf("?5", "?11", "?12 + 0") + `),
m AS MATERIALIZED (SELECT q.seq FROM w CROSS JOIN {live} AS q ON q.seq = w.seq WHERE q.order_key IN ` + keyList + ` LIMIT ?7 + 0)
SELECT ` + readColumns(givenAbove) + `
FROM t CROSS JOIN m CROSS JOIN {live} AS q ON q.seq = m.seq
WHERE t.walked
UNION ALL
` + readEnd(`CASE WHEN (SELECT count(*) FROM m) >= ?7 THEN coalesce((SELECT max(seq) FROM m), ?5) WHEN (SELECT count(*) FROM w) >= ?12 THEN (SELECT max(seq) FROM w) ELSE `+atEnd+` END`)
}

// fetchText finds the rows of a list by their ids.
func fetchText(given string) string {
	return readHead + `
SELECT ` + readColumns(given) + `
FROM t CROSS JOIN (WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 16 FROM n WHERE o + 16 < length(?5)) SELECT substr(?5, o, 16) AS id FROM n) AS a
CROSS JOIN {live} AS q ON q.id = a.id
WHERE t.walked AND ` + inMask + `
UNION ALL
` + readEnd(`0`)
}

const heldKeysText = `SELECT s.key + 1, ` + holds + ` AND EXISTS (SELECT 1 FROM {dead} AS d WHERE d.slot = s.value AND d.order_key = k.value) AS held, (SELECT redriven FROM {queues} WHERE name = {name}) AS redriven
FROM json_each(?1) AS s CROSS JOIN json_each(?2) AS k ON k.key = s.key`

// readers has the texts of an ordered queue.
type readers struct {
	read, refill, fetch, lookOrdered, heldKeys, markOrdered, releaseOrdered string
}

func newReaders(text func(string) string) readers {
	return readers{
		read: text(readText()), refill: text(refillText()), fetch: text(fetchText("1")), lookOrdered: text(fetchText("0")),
		heldKeys: text(heldKeysText), markOrdered: text(markOrderedText), releaseOrdered: text(releaseOrderedText),
	}
}

func slotMask(slots []sqlbatch.OwnedSlot) string {
	mask := []byte(strings.Repeat("0", sqlbatch.MaxSlots))
	for _, s := range slots {
		mask[s.Slot] = '1'
	}
	return string(mask)
}

func (q *queue) Read(r sqlbatch.ReadParams) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.read, Args: []any{
		r.Consumer[:], packOwned(r.Slots), int64(len(r.Slots)), slotMask(r.Slots), r.From, r.Cursor, int64(r.Rows), r.Old, jsonStrings(r.Keys), int64(r.Inline), r.Upto, int64(min(r.Behind, sqlbatch.MostWalked)),
	}}
}

func (q *queue) Refill(r sqlbatch.ReadParams) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.refill, Args: []any{
		r.Consumer[:], packOwned(r.Slots), int64(len(r.Slots)), slotMask(r.Slots), r.From, r.From, int64(r.Rows), r.Old, jsonStrings(r.Keys), int64(r.Inline), r.Upto, int64(sqlbatch.MostWalked),
	}}
}

func (q *queue) Fetch(consumer [16]byte, slots []sqlbatch.OwnedSlot, ids [][16]byte) sqlbatch.Statement {
	return byIDs(q.fetch, consumer, slots, ids)
}

func (q *queue) LookOrdered(consumer [16]byte, slots []sqlbatch.OwnedSlot, ids [][16]byte) sqlbatch.Statement {
	return byIDs(q.lookOrdered, consumer, slots, ids)
}

func byIDs(text string, consumer [16]byte, slots []sqlbatch.OwnedSlot, ids [][16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: text, Args: []any{consumer[:], packOwned(slots), int64(len(slots)), slotMask(slots), orNone(packIDs(ids))}}
}

func (q *queue) HeldKeys(slots []int, keys []string) sqlbatch.Statement {
	list := make([]string, len(slots))
	for i, slot := range slots {
		list[i] = fmt.Sprint(slot)
	}
	return sqlbatch.Statement{Text: q.heldKeys, Args: []any{"[" + strings.Join(list, ",") + "]", jsonStrings(keys)}}
}

// Settles of an ordered queue. In addition to the list of items there is a list of their fences, of 19 digits each.

const (
	// unwritten is the attempt of a delivery that is not in the row.
	unwritten = `(q.leased_by IS NULL)`

	// fenceAfter is the fence after a delivery: see sqlbatch.NackItem.
	fenceAfter = `iif(q.fence > {high fence}, p.delivery, max(q.fence, p.delivery)) + 1`

	// deliveries is the fence ?n of the item at o of a list of records.
	deliveries = `CAST(substr({fences}, (o - 1) / {size} * 19 + 1, 19) AS INTEGER) AS delivery`

	// another: a consumer other than ?2 has marked the message.
	another     = `(q.leased_by IS NOT NULL AND q.leased_by <> ?2)`
	staysMarked = `NOT ?4 AND ` + another
)

func deliveriesOf(fences, size string) string {
	return strings.NewReplacer("{fences}", fences, "{size}", size).Replace(deliveries)
}

// orderedEnds is endList with the fences ?3.
var orderedEnds = strings.Replace(endList, "SELECT substr(?1, o, 16) AS id,", "SELECT substr(?1, o, 16) AS id, "+deliveriesOf("?3", "71")+",", 1)

// itemList is a list of items with the fences.
func itemList(fences string) string {
	return `(
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 35 FROM n WHERE o + 35 < length(?1))
  SELECT substr(?1, o, 16) AS id, CAST(substr(?1, o + 16, 19) AS INTEGER) AS fence, ` + deliveriesOf(fences, "35") + ` FROM n) AS p`
}

func orderedNackOf(attempts, history string) string {
	return `UPDATE {live} AS q
SET due_at = {now} + p.amount, lease_until = 0, fence = ` + fenceAfter + `, attempts = min(q.attempts + ` + unwritten + `, {last attempt}) - ` + attempts + `, lapses = 0, leased_by = NULL, last_error = coalesce(p.error, q.last_error), history = ` + history + `
FROM ` + orderedEnds + `
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, ` + matchedIn("?4")
}

// matchedIn returns the fence that matched. A RETURNING has only the new row, so the fences are in an object, by id.
func matchedIn(object string) string {
	return `json_extract(` + object + `, '$.' || hex(id)) AS fence`
}

var (
	orderedArchiveText = strings.Replace(archiveInsertText, "fence, attempts, dedup_key, type, last_error, history, headers, body{order}\nFROM", "fence, min(attempts + (leased_by IS NULL), {last attempt}), dedup_key, type, last_error, history, headers, body{order}\nFROM", 1)

	orderedDeadLetterText = `INSERT OR REPLACE INTO {dead} (id, priority, enqueued_at, ended_at, cause, fingerprint, noticed_at, fence, attempts, dedup_key, type, last_error, history, headers, body{order})
SELECT q.id, q.priority, q.enqueued_at, {now}, p.amount >> 1, p.fingerprint, 0, ` + fenceAfter + `, min(q.attempts + ` + unwritten + `, {last attempt}) - (p.amount & 1), q.dedup_key, q.type, coalesce(p.error, q.last_error), iif(p.amount & 1, q.history, ` + failed + `), q.headers, q.body{q.order}
FROM ` + withFingerprints(orderedEnds, "?4") + ` CROSS JOIN {live} AS q ON q.id = p.id AND q.fence = p.fence`

	orderedReleaseText = `UPDATE {live} AS q SET lease_until = 0, fence = ` + fenceAfter + `, attempts = q.attempts + ` + unwritten + ` - 1, leased_by = NULL
FROM ` + itemList("?2") + `
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, ` + matchedIn("?3")

	// No lease ends after the membership, so that no lease of a former owner is valid when another consumer takes the slot.
	// The lease of a consumer without a row keeps its end.
	orderedExtendText = `UPDATE {live} SET lease_until = min(max(lease_until, {now} + ?2), coalesce((SELECT m.until FROM {consumers} AS m WHERE m.id = coalesce(leased_by, ?3)), lease_until)),
  attempts = min(attempts + (leased_by IS NULL), {last attempt}), leased_by = coalesce(leased_by, ?3)
WHERE rowid IN (` + matched + `)
RETURNING id, fence`

	markOrderedText = `UPDATE {live} AS q
SET fence = iif(q.fence > {high fence}, p.delivery, max(q.fence + 1, p.delivery)), attempts = min(q.attempts + 1, {last attempt}),
  lapses = min(q.lapses + ` + another + `, {last lapse}), leased_by = ?2,
  history = iif(` + another + `, ` + expired(`{now}`, `0`, `q.leased_by`) + `, q.history)
FROM ` + itemList("?3") + `
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, fence, lapses`

	// ?4 is 1 if a lease has expired.
	releaseOrderedText = `UPDATE {live} AS q
SET fence = ` + fenceAfter + `,
  attempts = min(CASE WHEN ?4 THEN q.attempts + ` + unwritten + ` WHEN q.leased_by = ?2 THEN q.attempts - 1 ELSE q.attempts END, {last attempt}),
  lapses = min(q.lapses + ?4, {last lapse}), lease_until = iif(` + staysMarked + `, q.lease_until, 0), leased_by = iif(` + staysMarked + `, q.leased_by, NULL),
  history = iif(?4, ` + expired(`{now}`, `0`, `?2`) + `, q.history)
FROM ` + itemList("?3") + `
WHERE q.id = p.id AND q.fence = p.fence
RETURNING id, fence, min(lapses + (leased_by IS NOT NULL), {last lapse})`
)

// settles replaces the settles that differ on an ordered queue.
func (q *queue) settles(text func(string) string) {
	q.archiveInsert, q.release, q.extend = text(orderedArchiveText), text(orderedReleaseText), text(orderedExtendText)
	q.nack, q.snooze = text(orderedNackOf("q.lapses", failed)), text(orderedNackOf("q.lapses - 1", kept))
	q.deadLetterInsert = text(orderedDeadLetterText)
}

// packMarks packs items, and a second fence for each.
func packMarks[T any](items []T, split func(T) (sqlbatch.Item, int64)) (list, fences []byte) {
	list, fences = make([]byte, 0, len(items)*itemSize), make([]byte, 0, len(items)*19+1)
	for _, i := range items {
		item, fence := split(i)
		list, fences = appendItem(list, item), appendDigits(fences, fence, 19)
	}
	return list, orNone(fences)
}

// fencesByID returns an object of the fences, by the ids in hexadecimal digits.
func fencesByID[T any](items []T, itemOf func(T) sqlbatch.Item) string {
	b := []byte{'{'}
	for n, i := range items {
		if item := itemOf(i); n > 0 {
			b = fmt.Appendf(b, `,"%X":%d`, item.ID, item.Fence)
		} else {
			b = fmt.Appendf(b, `"%X":%d`, item.ID, item.Fence)
		}
	}
	return string(append(b, '}'))
}

func deliveryOf(i sqlbatch.ReleaseItem) (sqlbatch.Item, int64) { return i.Item, i.Delivery }

func (q *queue) MarkOrdered(consumer [16]byte, items []sqlbatch.MarkItem) sqlbatch.Statement {
	list, fences := packMarks(items, func(i sqlbatch.MarkItem) (sqlbatch.Item, int64) { return i.Item, i.SlotFence })
	return sqlbatch.Statement{Text: q.markOrdered, Args: []any{list, consumer[:], fences}}
}

func (q *queue) ReleaseOrdered(consumer [16]byte, items []sqlbatch.ReleaseItem, lapsed bool) sqlbatch.Statement {
	list, fences := packMarks(items, deliveryOf)
	return sqlbatch.Statement{Text: q.releaseOrdered, Args: []any{list, consumer[:], fences, flag(lapsed)}}
}

func (q *queue) Release(items []sqlbatch.ReleaseItem) sqlbatch.Statement {
	list, deliveries := packMarks(items, deliveryOf)
	args := []any{list}
	if q.ordered {
		args = append(args, deliveries, fencesByID(items, func(i sqlbatch.ReleaseItem) sqlbatch.Item { return i.Item }))
	}
	return sqlbatch.Statement{Text: q.release, Args: args}
}

func (q *queue) Extend(consumer [16]byte, items []sqlbatch.Item, lease time.Duration) sqlbatch.Statement {
	args := []any{packItems(items), build.Milliseconds(lease)}
	if q.ordered {
		args = append(args, consumer[:])
	}
	return sqlbatch.Statement{Text: q.extend, Args: args}
}
