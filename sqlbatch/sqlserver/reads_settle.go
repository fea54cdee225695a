package sqlserver

import (
	"database/sql"
	"encoding/binary"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Settles of an ordered queue. @d has a fence of 8 bytes for each item of @a: that of its delivery, or of its slot.

const (
	fenceOfDelivery = `CONVERT(bigint, SUBSTRING(@d, 8 * (x.i + y.i) + 1, 8)) AS delivery`

	// fenceAfter is the fence after a delivery: see sqlbatch.NackItem.
	fenceAfter = `CASE WHEN {r}fence > CONVERT(bigint, {high fence}) OR {r}fence < a.delivery THEN a.delivery ELSE {r}fence END + 1`

	// written includes the attempt of a delivery that was not in the row.
	written = `CASE WHEN {r}leased_by IS NULL AND {r}attempts < {last attempt} THEN {r}attempts + 1 ELSE {r}attempts END`

	// joinSkipping leaves out rows that others have locked in any mode.
	joinSkipping = `INNER JOIN {live} AS q WITH (XLOCK, READPAST, ROWLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id AND q.fence = a.fence
`
	staysMarked = `@lapsed = 0 AND ` + byOther
)

var (
	itemsWithFences       = strings.Replace(items, " AS fence\n", " AS fence,\n           "+fenceOfDelivery+"\n", 1)
	deadLettersWithFences = strings.Replace(fromDeadLetters, " AS took\n", " AS took,\n           "+fenceOfDelivery+"\n", 1)

	orderedNackText = strings.NewReplacer("{entries}", "",
		"fence = q.fence + 1", "fence = "+of("q.", fenceAfter), "attempts = {attempts}", "attempts = "+of("q.", written)+" - {attempts}", " AS took\n", " AS took,\n           "+fenceOfDelivery+"\n",
	).Replace(nackText)

	orderedArchiveText = strings.Replace(archiveText, "deleted.attempts", of("deleted.", written), 1)

	orderedReleaseText = settling + `UPDATE q
SET lease_until = '19700101',
    fence = ` + of("q.", fenceAfter) + `,
    attempts = CASE WHEN q.leased_by IS NULL THEN q.attempts ELSE q.attempts - 1 END,
    leased_by = NULL
OUTPUT deleted.id, deleted.fence
` + itemsWithFences + joinLease + fromListOptions + `;
`

	orderedDeadLetterText = strings.NewReplacer(
		"deleted.fence + 1,", of("deleted.", fenceAfter)+",", "deleted.attempts - a.refund", of("deleted.", written)+" - a.refund", fromDeadLetters, deadLettersWithFences,
	).Replace(deadLetterText)

	// No lease ends after the membership, so that no lease of a former owner is valid when another consumer takes the slot.
	// The lease of a consumer without a row keeps its end.
	orderedExtendText = settling + `DECLARE @until datetime2(3) = DATEADD(millisecond, @lease_ms, DATEADD(day, @lease_days, SYSUTCDATETIME()));
UPDATE q
SET lease_until = CASE WHEN g.until < ` + extended + ` THEN g.until
                       WHEN g.until IS NULL AND q.lease_until < ` + extended + ` THEN q.lease_until
                       ELSE ` + extended + ` END,
    attempts = ` + of("q.", written) + `,
    leased_by = ` + holderNow + `
OUTPUT deleted.id, deleted.fence
` + items + joinLease + `CROSS APPLY (SELECT MIN(m.until) AS until FROM {consumers} AS m WITH (READUNCOMMITTED) WHERE m.id = ` + holderNow + `) AS g
` + fromListOptions + `;
`

	markOrderedText = settling + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
UPDATE q
SET fence = CASE WHEN q.fence > CONVERT(bigint, {high fence}) OR q.fence + 1 < a.delivery THEN a.delivery ELSE q.fence + 1 END,
    attempts = CASE WHEN q.attempts < {last attempt} THEN q.attempts + 1 ELSE q.attempts END,
    lapses = ` + lapsedThen + `,
    leased_by = @by,
    history = CASE WHEN ` + byOther + ` THEN ` + expired(millisNow, "0") + ` ELSE q.history END
OUTPUT inserted.id, inserted.fence, inserted.lapses
` + itemsWithFences + joinSkipping + holder("q.leased_by") + fromListOptions + `;
`

	releaseOrderedText = settling + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
UPDATE q
SET fence = ` + of("q.", fenceAfter) + `,
    attempts = CASE WHEN @lapsed = 1 AND q.leased_by IS NULL AND q.attempts < {last attempt} THEN q.attempts + 1
                    WHEN @lapsed = 0 AND q.leased_by = @by THEN q.attempts - 1 ELSE q.attempts END,
    lapses = CASE WHEN @lapsed = 1 AND q.lapses < {last lapse} THEN q.lapses + 1 ELSE q.lapses END,
    lease_until = CASE WHEN ` + staysMarked + ` THEN q.lease_until ELSE '19700101' END,
    leased_by = CASE WHEN ` + staysMarked + ` THEN q.leased_by END,
    history = CASE WHEN @lapsed = 1 THEN ` + expired(millisNow, "0") + ` ELSE q.history END
OUTPUT inserted.id, inserted.fence, CASE WHEN inserted.leased_by IS NOT NULL AND inserted.lapses < {last lapse} THEN inserted.lapses + 1 ELSE inserted.lapses END AS lapses
` + itemsWithFences + joinSkipping + holder("@by") + fromListOptions + `;
`
)

const holderNow = `CASE WHEN q.leased_by IS NULL THEN @by ELSE q.leased_by END`

// orderedSettles replaces the settles that differ on an ordered queue.
func (q *queue) orderedSettles(render func(template string) string) {
	q.archive, q.release, q.extend, q.deadLetter = render(orderedArchiveText), render(orderedReleaseText), render(orderedExtendText), render(orderedDeadLetterText)
	nack, snooze := nackTexts(orderedNackText, "q.lapses")
	q.nack, q.snooze = render(nack), render(snooze)
}

// packFences packs fences in the order that packItems uses for the items.
func packFences[T any](items []T, split func(T) (sqlbatch.Item, int64)) (list []sqlbatch.Item, fences []byte) {
	for _, i := range build.InOrder(items, func(a, b T) int {
		x, _ := split(a)
		y, _ := split(b)
		return build.CompareIDs(x.ID, y.ID)
	}) {
		item, fence := split(i)
		list, fences = append(list, item), binary.BigEndian.AppendUint64(fences, uint64(fence))
	}
	return list, append([]byte{}, fences...)
}

func releaseItem(i sqlbatch.ReleaseItem) (sqlbatch.Item, int64) { return i.Item, i.Delivery }

func (q *queue) MarkOrdered(consumer [16]byte, items []sqlbatch.MarkItem) sqlbatch.Statement {
	list, fences := packFences(items, func(i sqlbatch.MarkItem) (sqlbatch.Item, int64) { return i.Item, i.SlotFence })
	return q.orderedCall(q.markOrdered, itemsDeclaration+", @d varbinary(8000), @by binary(16)",
		sql.Named("a", packItems(list)), sql.Named("d", fences), sql.Named("by", consumer[:]))
}

func (q *queue) ReleaseOrdered(consumer [16]byte, items []sqlbatch.ReleaseItem, lapsed bool) sqlbatch.Statement {
	list, fences := packFences(items, releaseItem)
	return q.orderedCall(q.releaseOrdered, itemsDeclaration+", @d varbinary(8000), @by binary(16), @lapsed int",
		sql.Named("a", packItems(list)), sql.Named("d", fences), sql.Named("by", consumer[:]), sql.Named("lapsed", int32(flag(lapsed))))
}

func (q *queue) Release(items []sqlbatch.ReleaseItem) sqlbatch.Statement {
	list, fences := packFences(items, releaseItem)
	if !q.ordered {
		return call(q.release, itemsDeclaration, sql.Named("a", packItems(list)))
	}
	return call(q.release, itemsDeclaration+", @d varbinary(8000)", sql.Named("a", packItems(list)), sql.Named("d", fences))
}
