package sqlite

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Reads by the owners of slots. seq is the rowid, and one writer makes all numbers up to the last one
// visible in order: the cursor is the watermark, and there are no senders.

type readsText struct {
	read, readKeys, contents, blind, heldKeys, own, give, look        string
	ack, archiveInsert, end, buryInsert, buryDelete, extend, endAfter string
	mark                                                              string
}

// walkedNow is whether ?1 is alive and owns the ?3 parts of ?2 by their fences, and the queue is not paused.
const walkedNow = `((SELECT count(*) FROM (
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 23 FROM n WHERE o + 23 < length(?2))
    SELECT CAST(substr(?2, o, 4) AS INTEGER) AS slot, CAST(substr(?2, o + 4, 19) AS INTEGER) AS fence FROM n WHERE length(?2) > 1) AS p
  CROSS JOIN {slots} AS s ON s.queue = {name} AND s.slot = p.slot AND s.fence = p.fence AND s.member = ?1) = ?3
  AND EXISTS (SELECT 1 FROM {members} AS m WHERE m.id = ?1 AND ` + alive + `) AND NOT ` + paused + `)`

func readColumns(given string, holds bool) string {
	held := `0`
	if holds {
		held = `CASE WHEN q.order_key IS NOT NULL AND EXISTS (SELECT 1 FROM {dead} AS d WHERE d.slot = q.slot AND d.order_key = q.order_key) THEN 1 ELSE 0 END`
	}
	content := `NULL AS dedup_key, NULL AS headers, NULL AS body`
	if given != "0" {
		content = `CASE WHEN ` + given + ` THEN q.dedup_key END, CASE WHEN ` + given + ` THEN q.headers END, CASE WHEN ` + given + ` THEN q.body END`
	}
	return `q.id, q.priority, q.fence, q.attempts, q.lapses, coalesce(q.expires_at <= t.now, 0) AS expired, q.enqueued_at, q.due_at, q.expires_at,
  ` + content + `, q.slot, q.seq, q.order_key, max(q.due_at - t.now, CASE WHEN q.leased_by IS NOT ?1 THEN q.lease_until - t.now ELSE 0 END, 0) AS wait,
  CASE WHEN q.leased_by IS NULL THEN 0 WHEN q.leased_by = ?1 THEN 1 ELSE 2 END AS holder, ` + held + ` AS held, (` + given + `) AS given`
}

const lastDrawn = `coalesce((SELECT z.seq FROM {sequence} AS z WHERE z.name = {live_text}), 0)`

func readTail(last string) string {
	return `SELECT NULL, t.walked, ` + lastDrawn + `, 0, 0, 0, (SELECT redriven FROM {queues} WHERE name = {name}), ` + last + `, NULL, NULL, NULL, x'', 0, 0, NULL, 0, 0, 0, 0 FROM t`
}

// mine: ?4 has a digit for each slot.
const mine = `substr(?4, q.slot + 1, 1) = '1'`

const keyList = `(SELECT k.value FROM json_each(?9) AS k)`

func readText(holds bool) string {
	return `WITH t AS MATERIALIZED (SELECT {now} AS now, ` + walkedNow + ` AS walked)
SELECT ` + readColumns(`q.seq > ?8 AND (q.order_key IN `+keyList+`) IS NOT 1`, holds) + `
FROM t CROSS JOIN (SELECT * FROM {live} AS q WHERE q.seq > ?5 AND q.seq <= ?6 AND ` + mine + ` ORDER BY q.seq LIMIT ?7 + 0) AS q
WHERE t.walked
UNION ALL
` + readTail(`9223372036854775807`)
}

func readKeysText(holds bool) string {
	return `WITH t AS MATERIALIZED (SELECT {now} AS now, ` + walkedNow + ` AS walked),
w AS NOT MATERIALIZED (SELECT q.seq, q.order_key FROM {live} AS q WHERE q.seq > ?5 AND q.seq <= ?6 AND ` + mine + ` ORDER BY q.seq LIMIT ` + fmt.Sprint(sqlbatch.MostWalked) + `),
m AS MATERIALIZED (SELECT w.seq FROM w WHERE w.order_key IN ` + keyList + ` LIMIT ?7 + 0)
SELECT ` + readColumns(`q.seq > ?8`, holds) + `
FROM t CROSS JOIN m CROSS JOIN {live} AS q ON q.seq = m.seq
WHERE t.walked
UNION ALL
` + readTail(`CASE WHEN (SELECT count(*) FROM m) >= ?7 THEN (SELECT max(seq) FROM m) WHEN (SELECT count(*) FROM w) >= `+fmt.Sprint(sqlbatch.MostWalked)+` THEN (SELECT max(seq) FROM w) ELSE 9223372036854775807 END`)
}

func contentsText(given string, holds bool) string {
	return `WITH t AS MATERIALIZED (SELECT {now} AS now, ` + walkedNow + ` AS walked)
SELECT ` + readColumns(given, holds) + `
FROM t CROSS JOIN (WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 16 FROM n WHERE o + 16 < length(?5)) SELECT substr(?5, o, 16) AS id FROM n) AS a
CROSS JOIN {live} AS q ON q.id = a.id
WHERE t.walked AND ` + mine + `
UNION ALL
` + readTail(`0`)
}

const heldKeysText = `SELECT s.key + 1, EXISTS (SELECT 1 FROM {dead} AS d WHERE d.slot = s.value AND d.order_key = k.value), (SELECT redriven FROM {queues} WHERE name = {name})
FROM json_each(?1) AS s CROSS JOIN json_each(?2) AS k ON k.key = s.key`

var ownSlotsText = strings.NewReplacer(
	"SET member = ?1, fence = fence + 1", `SET old = CASE WHEN member IS NULL THEN old ELSE `+lastDrawn+` END, member = ?1, fence = max(fence, {now} << 20) + ?3`,
	"RETURNING slot, fence", "RETURNING slot, fence, old").Replace(takeSlotsText)

const returnSlotsText = `UPDATE {slots} SET member = NULL, old = CASE WHEN (SELECT p.most FROM ` + partList + ` AS p WHERE p.slot = {slots_unqualified}.slot) > 0 THEN ` + lastDrawn + ` ELSE old END
WHERE queue = {name} AND member = ?2 AND (slot, fence) IN (SELECT slot, fence FROM ` + partList + `)
RETURNING slot, fence`

// Settles of what was read: record = id 16, fence 19, seq 19, fence of the delivery 19, delay 13, how 1, error
// offset 9 and length 4.
const readSize = 16 + 19 + 19 + 19 + 13 + 1 + 9 + 4

const readList = `(
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 100 FROM n WHERE o + 100 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 35, 19) AS INTEGER) AS seq,
         CAST(substr(?1, o + 54, 19) AS INTEGER) AS delivery,
         CAST(substr(?1, o + 73, 13) AS INTEGER) AS delay,
         CAST(substr(?1, o + 86, 1) AS INTEGER) AS how,
         nullif(CAST(substr(?2, CAST(substr(?1, o + 87, 9) AS INTEGER), CAST(substr(?1, o + 96, 4) AS INTEGER)) AS TEXT), '') AS error
  FROM n) AS p`

// readMatched are the rowids of the rows that a list names, and readJoin has them beside it.
const (
	readMatched = `SELECT q.seq FROM (
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 100 FROM n WHERE o + 100 < length(?1))
    SELECT o FROM n) AS n
  CROSS JOIN {live} AS q ON q.seq = CAST(substr(?1, o + 35, 19) AS INTEGER) AND q.id = substr(?1, o, 16) AND q.fence = CAST(substr(?1, o + 16, 19) AS INTEGER)`
	readJoin  = readList + ` CROSS JOIN {live} AS q ON q.seq = p.seq AND q.id = p.id AND q.fence = p.fence`
	countsNow = `(q.leased_by IS NULL)`
)

func extendReadText(end string) string {
	return `UPDATE {live} AS q SET lease_until = min(` + end + `, (SELECT m.until FROM {members} AS m WHERE m.id = ?3)), leased_by = ?3, attempts = min(q.attempts + ` + countsNow + `, {last attempt})
WHERE EXISTS (SELECT 1 FROM {members} AS m WHERE m.id = ?3) AND q.seq IN (` + readMatched + `)
RETURNING id, fence`
}

func newReadsText(text func(string) string, holds bool) readsText {
	return readsText{
		read: text(readText(holds)), readKeys: text(readKeysText(holds)), contents: text(contentsText("1", holds)), blind: text(contentsText("0", holds)),
		heldKeys: text(heldKeysText), own: text(ownSlotsText), give: text(returnSlotsText),
		look: text(`SELECT q.id, CASE WHEN q.seq = p.seq THEN q.fence ELSE -1 END FROM ` + readList + ` CROSS JOIN {live} AS q ON q.id = p.id WHERE ?2 IS NOT NULL`),
		ack: text(`DELETE FROM {live} WHERE rowid IN (` + readMatched + `)
RETURNING id, fence`),
		archiveInsert: text(`INSERT OR REPLACE INTO {done} (id, priority, enqueued_at, ended_at, fence, attempts, dedup_key, last_error, headers, body{order})
SELECT q.id, q.priority, q.enqueued_at, {now}, q.fence, q.attempts + ` + countsNow + `, q.dedup_key, q.last_error, q.headers, q.body{q.order}
FROM {live} AS q WHERE q.seq IN (` + readMatched + `)`),
		end: text(`UPDATE {live} AS q
SET due_at = CASE WHEN p.how < 2 THEN {now} + p.delay ELSE q.due_at END, lease_until = 0, fence = CASE WHEN q.fence > {high fence} THEN p.delivery ELSE max(q.fence, p.delivery) END + 1,
  attempts = min({last attempt}, max(0, q.attempts + ` + countsNow + ` - CASE p.how WHEN 0 THEN q.lapses WHEN 1 THEN q.lapses + 1 WHEN 2 THEN 1 ELSE 0 END)),
  lapses = CASE p.how WHEN 2 THEN q.lapses WHEN 3 THEN min(q.lapses + 1, {last lapse}) ELSE 0 END, leased_by = NULL, last_error = coalesce(p.error, q.last_error)
FROM ` + readList + `
WHERE q.seq = p.seq AND q.id = p.id AND q.fence = p.fence
RETURNING id, fence`),
		buryInsert: text(`INSERT OR REPLACE INTO {dead} (id, priority, enqueued_at, ended_at, fence, attempts, dedup_key, last_error, headers, body{order})
SELECT q.id, q.priority, q.enqueued_at, {now}, CASE WHEN q.fence > {high fence} THEN p.delivery ELSE max(q.fence, p.delivery) END + 1, q.attempts + ` + countsNow + ` - p.how, q.dedup_key, coalesce(p.error, q.last_error), q.headers, q.body{q.order}
FROM ` + readJoin),
		buryDelete: text(`DELETE FROM {live} WHERE ?2 IS NOT NULL AND rowid IN (` + readMatched + `)
RETURNING id, fence`),
		extend: text(extendReadText(`max(q.lease_until, {now} + ?2)`)), endAfter: text(extendReadText(`{now} + ?2`)),
		mark: text(`UPDATE {live} AS q
SET fence = CASE WHEN q.fence > {high fence} THEN p.delivery ELSE max(q.fence + 1, p.delivery) END, attempts = min(q.attempts + 1, {last attempt}), lapses = min(q.lapses + (q.leased_by IS NOT NULL AND q.leased_by <> ?3), {last lapse}), leased_by = ?3
FROM ` + readList + `
WHERE q.seq = p.seq AND q.id = p.id AND q.fence = p.fence AND q.lapses + (q.leased_by IS NOT NULL AND q.leased_by <> ?3) < ?4
RETURNING id, fence`),
	}
}

// packOwned are records of slot 4 and fence 19.
func packOwned(parts []sqlbatch.SlotPart) []byte {
	list := make([]byte, 0, len(parts)*23+1)
	for _, p := range parts {
		list = appendDigits(appendDigits(list, int64(p.Slot), 4), p.Fence, 19)
	}
	return orNone(list)
}

func slotMask(parts []sqlbatch.SlotPart) string {
	mask := []byte(strings.Repeat("0", sqlbatch.MaxSlots))
	for _, p := range parts {
		mask[p.Slot] = '1'
	}
	return string(mask)
}

func (q *queue) Read(r sqlbatch.SlotRead) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reads.read, Args: []any{
		r.Member[:], packOwned(r.Parts), int64(len(r.Parts)), slotMask(r.Parts), max(r.From, r.Cursor), r.Upto, int64(r.Rows), r.Old, jsonStrings(r.Keys),
	}}
}

func (q *queue) ReadKeys(r sqlbatch.KeyRead) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reads.readKeys, Args: []any{
		r.Member[:], packOwned(r.Parts), int64(len(r.Parts)), slotMask(r.Parts), r.From, r.Upto, int64(r.Rows), r.Old, jsonStrings(r.Keys),
	}}
}

func (q *queue) Contents(member [16]byte, parts []sqlbatch.SlotPart, ids [][16]byte, blind bool) sqlbatch.Statement {
	text := q.reads.contents
	if blind {
		text = q.reads.blind
	}
	return sqlbatch.Statement{Text: text, Args: []any{member[:], packOwned(parts), int64(len(parts)), slotMask(parts), orNone(packIDs(ids))}}
}

func (q *queue) HeldKeys(slots []int, keys []string) sqlbatch.Statement {
	list := make([]string, len(slots))
	for i, slot := range slots {
		list[i] = fmt.Sprint(slot)
	}
	return sqlbatch.Statement{Text: q.reads.heldKeys, Args: []any{"[" + strings.Join(list, ",") + "]", jsonStrings(keys)}}
}

func (q *queue) OwnSlots(member [16]byte, salt int64, slots []int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reads.own, Args: []any{member[:], packSlots(slots), salt}}
}

func (q *queue) ReturnSlots(member [16]byte, parts []sqlbatch.SlotPart) sqlbatch.Statement {
	list := make([]sqlbatch.SlotPart, len(parts))
	for i, p := range parts {
		list[i] = sqlbatch.SlotPart{Slot: p.Slot, Fence: p.Fence}
		if p.Doubt {
			list[i].Limit = 1
		}
	}
	return sqlbatch.Statement{Text: q.reads.give, Args: []any{packParts(list), member[:]}}
}

func appendRead(list, errs []byte, i sqlbatch.ReadItem, delay time.Duration, how uint8, text string) (newList, newErrs []byte) {
	text = build.Cut(text)
	list = appendItem(list, i.Item)
	list = appendDigits(list, i.Seq, 19)
	list = appendDigits(list, i.Delivery, 19)
	list = appendDigits(list, build.Milliseconds(delay), 13)
	list = appendDigits(list, int64(how), 1)
	list = appendDigits(list, int64(len(errs)+1), 9)
	list = appendDigits(list, int64(len(text)), 4)
	return list, append(errs, text...)
}

func packRead(items []sqlbatch.ReadItem) []byte {
	list := make([]byte, 0, len(items)*readSize)
	for _, i := range items {
		list, _ = appendRead(list, nil, i, 0, 0, "")
	}
	return list
}

func (q *queue) AckRead(items []sqlbatch.ReadItem) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reads.ack, Args: []any{packRead(items)}}
}

func (q *queue) ArchiveRead(items []sqlbatch.ReadItem) sqlbatch.Statement {
	args := []any{packRead(items)}
	return sqlbatch.Statement{Text: q.reads.ack, Args: args, Prior: []sqlbatch.Statement{{Text: q.reads.archiveInsert, Args: args}}}
}

func (q *queue) EndRead(items []sqlbatch.ReadEnd) sqlbatch.Statement {
	list, errs := make([]byte, 0, len(items)*readSize), []byte(nil)
	for _, i := range items {
		list, errs = appendRead(list, errs, i.ReadItem, i.Delay, uint8(i.How), i.Error)
	}
	return sqlbatch.Statement{Text: q.reads.end, Args: []any{list, orNone(errs)}}
}

func (q *queue) BuryRead(items []sqlbatch.ReadBury) sqlbatch.Statement {
	list, errs := make([]byte, 0, len(items)*readSize), []byte(nil)
	for _, i := range items {
		how := uint8(0)
		if i.Uncounted {
			how = 1
		}
		list, errs = appendRead(list, errs, i.ReadItem, 0, how, i.Error)
	}
	args := []any{list, orNone(errs)}
	return sqlbatch.Statement{Text: q.reads.buryDelete, Args: args, Prior: []sqlbatch.Statement{{Text: q.reads.buryInsert, Args: args}}}
}

func (q *queue) ExtendRead(member [16]byte, items []sqlbatch.ReadItem, lease time.Duration) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reads.extend, Args: []any{packRead(items), build.Milliseconds(lease), member[:]}}
}

func (q *queue) EndAfterRead(member [16]byte, items []sqlbatch.ReadItem, lease time.Duration) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reads.endAfter, Args: []any{packRead(items), build.Milliseconds(lease), member[:]}}
}

func (q *queue) Mark(member [16]byte, items []sqlbatch.ReadItem, lapses int) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reads.mark, Args: []any{packRead(items), []byte{0}, member[:], int64(min(lapses, math.MaxInt32))}}
}

func (q *queue) LookRead(items []sqlbatch.ReadItem) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.reads.look, Args: []any{packRead(items), []byte{0}}}
}
