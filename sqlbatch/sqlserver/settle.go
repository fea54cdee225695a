package sqlserver

import (
	"database/sql"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Extensions move the end of the leases: fences stay. Path and locks are those of ackText, but no index is changed. The
// commit does not use delayed durability: if a crash undid an extension, another consumer could take the lease while
// its holder still relies on it.
const extendText = settling + `DECLARE @until datetime2(3) = DATEADD(millisecond, @lease_ms, DATEADD(day, @lease_days, SYSUTCDATETIME()));
UPDATE q
SET lease_until = ` + extended + `
OUTPUT deleted.id, deleted.fence
` + items + joinLease + `` + fromListOptions + `;
`

func (q *queue) Extend(consumer [16]byte, items []sqlbatch.Item, lease time.Duration) sqlbatch.Statement {
	days, ms := span(build.Milliseconds(lease))
	declaration, args := "@a varbinary(8000), @lease_days int, @lease_ms int", []any{sql.Named("a", packItems(items)), sql.Named("lease_days", days), sql.Named("lease_ms", ms)}
	if q.ordered {
		declaration, args = declaration+", @by binary(16)", append(args, sql.Named("by", consumer[:]))
	}
	return call(q.extend, declaration, args...)
}

// numbers counts 0 to 399: constant rows, so that a list needs no temporary object and no estimate. x outside, y
// inside: ascending, as the ids of the list are.
const numbers = `(VALUES (0), (20), (40), (60), (80), (100), (120), (140), (160), (180),
                 (200), (220), (240), (260), (280), (300), (320), (340), (360), (380)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11),
                       (12), (13), (14), (15), (16), (17), (18), (19)) AS y (i)`

// joinLease finds the leases of a list by the clustered key.
//
// FORCE ORDER and LOOP JOIN: the list outside, one seek of PK for each item inside, ids ascending: settles lock in one
// order and cannot deadlock with each other. INDEX with FORCESEEK: never a scan. A row gets a U lock, then X when id
// and fence match. If its entry in IX is deleted or moves, that gets an X lock after the row. ROWLOCK: a page lock
// would stop claimers.
//
// A statement outside of a caller's transaction skips the rows that other transactions have locked (READPAST): one row
// in another open transaction would otherwise delay a whole batch of settles, until their leases end. Look finds the
// state of the row later. In a transaction of the caller it waits: there is no later.
const (
	joinLease = `INNER JOIN {live} AS q WITH ({past}ROWLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id AND q.fence = a.fence
`
	fromListOptions = `OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN)`
)

// fromItems selects the leases named by @a, of itemBytes each. A settle that changes entries of indexes has {entries}: see entryJoins.
const fromItems = items + joinLease + "{entries}" + fromListOptions

const items = `FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@a, 24 * (x.i + y.i) + 1, 16)) AS id,
           CONVERT(bigint, SUBSTRING(@a, 24 * (x.i + y.i) + 17, 8)) AS fence
    FROM ` + numbers + `
    WHERE x.i + y.i < DATALENGTH(@a) / 24
) AS a
`

// ackText deletes leases: U then X on the row by PK, then X on its entries in IX and UX. A repetition deletes nothing,
// so an ack with an unknown outcome can be repeated.
//
// DELAYED_DURABILITY avoids the wait for the log if the database allows it, and is ignored otherwise (the default): if
// a crash undoes an ack, the message is redelivered, which at-least-once permits.
const ackText = settling + `~BEGIN TRANSACTION;
DELETE q
OUTPUT deleted.id, deleted.fence
` + fromItems + `;
~COMMIT TRANSACTION WITH (DELAYED_DURABILITY = ON);
`

// archiveText is ackText that keeps the row in the done table: OUTPUT INTO and OUTPUT in one statement, so that moving
// and confirming are one.
const archiveText = settling + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
~BEGIN TRANSACTION;
DELETE q
OUTPUT deleted.id, deleted.priority, deleted.fence, deleted.attempts, deleted.enqueued_at, @now, {acked},
       deleted.dedup_key, deleted.type, deleted.headers, deleted.body, deleted.last_error, deleted.history{deleted order}
INTO {done} (id, priority, fence, attempts, enqueued_at, ended_at, outcome, dedup_key, [type], headers, body, last_error, history{order})
OUTPUT deleted.id, deleted.fence
` + fromItems + `;
~COMMIT TRANSACTION WITH (DELAYED_DURABILITY = ON);
`

const itemsDeclaration = "@a varbinary(8000)"

func (q *queue) Ack(items []sqlbatch.Item) sqlbatch.Statement {
	return call(q.ack, itemsDeclaration, sql.Named("a", packItems(items)))
}

func (q *queue) Archive(items []sqlbatch.Item) sqlbatch.Statement {
	return call(q.archive, itemsDeclaration, sql.Named("a", packItems(items)))
}

// addAttempt is the history of a row with another attempt, of a consumer with the name h.name: see sqlbatch.MostHistory.
func addAttempt(row, ended, took, text string) string {
	return `CONVERT(nvarchar({most history}), CONCAT(` + ended + `, N' ', ` + took + `, N' ', SUBSTRING(h.name, 1, {most name}), CONVERT(nvarchar(1), 0x0A00),
        ` + text + `, CONVERT(nvarchar(1), 0x1E00), ` + row + `history))`
}

// failed is the history after an attempt that failed.
func failed(row string) string {
	return addAttempt(row, millisNow, `a.took`, `CONVERT(nvarchar({most text}), SUBSTRING(@e, a.place + 1, a.bytes))`)
}

// expired is the history after a lease has expired.
func expired(ended, took string) string { return addAttempt("q.", ended, took, `N'{expired}'`) }

const millisNow = `DATEDIFF_BIG(millisecond, '19700101', @now)`

// holder joins the name of a consumer. OUTPUT allows no query.
func holder(id string) string {
	return `CROSS APPLY (SELECT MIN(m.name) AS name FROM {consumers} AS m WITH (READUNCOMMITTED) WHERE m.id = ` + id + `) AS h
`
}

// holderOfDelivery joins the name of the consumer that has delivered a message of an ordered queue: most deliveries are not in the row.
const holderOfDelivery = `CROSS APPLY (SELECT MIN(m.name) AS name FROM {slots} AS s WITH (READUNCOMMITTED)
    INNER JOIN {consumers} AS m WITH (READUNCOMMITTED) ON m.id = CASE WHEN q.leased_by IS NULL THEN s.consumer ELSE q.leased_by END
    WHERE s.queue = {name} AND s.slot = q.slot) AS h
`

// nackTexts returns the texts of a nack and of a snooze.
func nackTexts(text, failures string) (nack, snooze string) {
	return strings.NewReplacer("{attempts}", failures, "{history}", ",\n    history = "+failed("q.")).Replace(text),
		strings.NewReplacer("{attempts}", failures+" - 1", "{history}", "", "{holder of q}", "").Replace(text)
}

// nackText ends leases by raising the fence: a late ack or a repetition matches nothing. Path and locks are those of
// ackText.
//
// A snooze differs in the attempt, which it refunds ({attempts}), and does not add to the history ({history}).
//
// All error texts are one parameter, which the statement cuts into parts: bytes of UTF-16LE, which CONVERT
// reinterprets.
const nackText = settling + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
UPDATE q
SET due_at = DATEADD(millisecond, a.delay_ms, DATEADD(day, a.delay_days, @now)),
    lease_until = '19700101',
    fence = q.fence + 1,
    attempts = {attempts},
    lapses = 0,
    leased_by = NULL,
    last_error = CASE WHEN a.bytes = 0 THEN q.last_error
                      ELSE CONVERT(nvarchar(2000), SUBSTRING(@e, a.place + 1, a.bytes)) END{history}
OUTPUT deleted.id, deleted.fence
FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@a, 42 * (x.i + y.i) + 1, 16)) AS id,
           CONVERT(bigint, SUBSTRING(@a, 42 * (x.i + y.i) + 17, 8)) AS fence,
           CONVERT(int, SUBSTRING(@a, 42 * (x.i + y.i) + 25, 4)) AS delay_days,
           CONVERT(int, SUBSTRING(@a, 42 * (x.i + y.i) + 29, 4)) AS delay_ms,
           CONVERT(int, SUBSTRING(@a, 42 * (x.i + y.i) + 33, 4)) AS place,
           CONVERT(int, SUBSTRING(@a, 42 * (x.i + y.i) + 37, 2)) AS bytes,
           CONVERT(int, SUBSTRING(@a, 42 * (x.i + y.i) + 39, 4)) AS took
    FROM ` + numbers + `
    WHERE x.i + y.i < DATALENGTH(@a) / 42
) AS a
` + joinLease + "{entries}{holder of q}" + fromListOptions + `;
`

func (q *queue) Nack(items []sqlbatch.NackItem) sqlbatch.Statement { return q.nackOf(q.nack, items) }

func (q *queue) Snooze(items []sqlbatch.NackItem) sqlbatch.Statement {
	return q.nackOf(q.snooze, items)
}

func (q *queue) nackOf(text string, items []sqlbatch.NackItem) sqlbatch.Statement {
	list, errors := packNacks(items)
	_, fences := packFences(items, func(i sqlbatch.NackItem) (sqlbatch.Item, int64) { return i.Item, i.Delivery })
	return q.withErrors(text, list, errors, fences)
}

// withErrors is a settle with error texts, and on an ordered queue with the fences of the deliveries.
func (q *queue) withErrors(text string, list, errors, fences []byte) sqlbatch.Statement {
	declaration, args := "@a varbinary(8000), @e varbinary(max)", []any{sql.Named("a", list), sql.Named("e", errors)}
	if q.ordered {
		declaration, args = declaration+", @d varbinary(8000)", append(args, sql.Named("d", fences))
	}
	return call(text, declaration, args...)
}

// releaseText restores messages to their state before the claim: they have kept their place in the order, and the
// attempt is not counted. The fence still rises, since it never decreases. No index is changed.
const releaseText = settling + `UPDATE q
SET lease_until = '19700101',
    fence = q.fence + 1,
    attempts = q.attempts - 1,
    leased_by = NULL
OUTPUT deleted.id, deleted.fence
` + items + joinLease + fromListOptions + `;
`

// deadLetterText moves leases to the dead-letter table, as archiveText does. It does not use delayed durability: a
// dead-lettered message with its error must not be redelivered.
//
// An id might already be in the dead-letter table: an INSERT that was repeated after an unknown outcome might restore a
// message that had died meanwhile. The older copy is replaced, or 2627 would keep the new one live permanently. UPDLOCK
// in that first statement keeps the lease locked until the second moves it.
const deadLetterText = settling + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
~BEGIN TRANSACTION;
DELETE d
` + fromDeadLetters + `INNER JOIN {live} AS q WITH ({hold}ROWLOCK, INDEX ({pk}), FORCESEEK) ON q.id = a.id AND q.fence = a.fence
INNER JOIN {dead} AS d WITH (ROWLOCK, INDEX ({dead pk}), FORCESEEK) ON d.id = q.id
` + fromListOptions + `;
DELETE q
OUTPUT deleted.id, deleted.priority, deleted.fence + 1, deleted.attempts - a.refund, deleted.enqueued_at, @now,
       a.cause, CASE WHEN a.fingerprint <> 0 THEN a.fingerprint END,
       deleted.dedup_key, deleted.type, deleted.headers, deleted.body,
       CASE WHEN a.bytes = 0 THEN deleted.last_error
            ELSE CONVERT(nvarchar(2000), SUBSTRING(@e, a.place + 1, a.bytes)) END,
       CASE WHEN a.refund = 1 THEN deleted.history ELSE {attempt of deleted} END{deleted order}
INTO {dead} (id, priority, fence, attempts, enqueued_at, ended_at, cause, fingerprint, dedup_key, [type], headers, body, last_error, history{order})
OUTPUT deleted.id, deleted.fence
` + fromDeadLetters + joinLease + "{entries}{holder of q}" + fromListOptions + `;
~COMMIT TRANSACTION;
`

// fromDeadLetters selects the records of @a, of deadLetterBytes each.
const fromDeadLetters = `FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@a, 43 * (x.i + y.i) + 1, 16)) AS id,
           CONVERT(bigint, SUBSTRING(@a, 43 * (x.i + y.i) + 17, 8)) AS fence,
           CONVERT(int, SUBSTRING(@a, 43 * (x.i + y.i) + 25, 4)) AS place,
           CONVERT(int, SUBSTRING(@a, 43 * (x.i + y.i) + 29, 2)) AS bytes,
           CONVERT(bigint, SUBSTRING(@a, 43 * (x.i + y.i) + 32, 8)) AS fingerprint,
           CONVERT(smallint, SUBSTRING(@a, 43 * (x.i + y.i) + 31, 1)) / 2 AS cause,
           CONVERT(int, SUBSTRING(@a, 43 * (x.i + y.i) + 31, 1)) % 2 AS refund,
           CONVERT(int, SUBSTRING(@a, 43 * (x.i + y.i) + 40, 4)) AS took
    FROM ` + numbers + `
    WHERE x.i + y.i < DATALENGTH(@a) / 43
) AS a
`

func (q *queue) DeadLetter(items []sqlbatch.DeadLetterItem) sqlbatch.Statement {
	list, errors := packDeadLetters(items)
	_, fences := packFences(items, func(i sqlbatch.DeadLetterItem) (sqlbatch.Item, int64) { return i.Item, i.Delivery })
	return q.withErrors(q.deadLetter, list, errors, fences)
}
