package sqlserver

import (
	"cmp"
	"database/sql"
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// maxRung: 512 rows are 2,048 parameters, and sp_executesql accepts 2,098.
const maxRung = 512

// enqueueText inserts into the clustered key (PK), the index of due times (IX) and, for rows with a key, the filtered index of keys (UX).
// It takes an X lock on each new key and nothing else. Fence, attempts, lapses and the end of the lease begin with their defaults.
//
// It waits for a reader that holds the range of a new key (SERIALIZABLE), and for a transaction that has stored the same id or key.
//
// ROWLOCK: a page lock would stop claimers, whose READPAST skips only row locks. Unused slots of the size are NULL and filtered out. The
// rows come in id order from the client; an ORDER BY would sort the bodies on the server and reserve memory for that.
//
// The commit does not use delayed durability: a lost row would be a lost message. If the database forces it on every commit, no statement
// can prevent it, and Problems reports it.
const enqueueText = settling + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
INSERT INTO {live} WITH (ROWLOCK) (id, priority, due_at, enqueued_at, expires_at, dedup_key, [type], headers, body)
` + enqueueSelect + `;
`

// enqueueSelect makes rows from the parameters.
const enqueueSelect = `SELECT CONVERT(binary(16), SUBSTRING(v.m, 1, 16)),
       CONVERT(smallint, SUBSTRING(v.m, 17, 1)) - 1,
       DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 22, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 18, 4)), @now)),
       @now,
       CASE WHEN SUBSTRING(v.m, 26, 8) <> 0x0000000000000000
            THEN DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 30, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 26, 4)), @now)) END,
       v.k, CASE WHEN DATALENGTH(v.m) > 33 THEN SUBSTRING(v.m, 34, 100) END, v.h, v.b
FROM (VALUES {rows}) AS v (m, k, h, b)
WHERE v.m IS NOT NULL`

// enqueueNewText inserts the rows whose id and key do not exist yet.
//
// The probe for the id seeks the clustered key. READCOMMITTEDLOCK makes it wait for an insert of the same id that is still in progress (an
// earlier attempt whose outcome is unknown), which row versions would not show. It takes no range lock: the gap after the last id is where
// every producer inserts. An attempt that starts between probe and insert causes a duplicate (2627).
//
// The probe for the key seeks UX; `e.dedup_key IS NOT NULL` lets the optimizer use that filtered index. It waits only for an insert or a
// delete of the same key that is in progress. It locks no range: messages that are inserted and acked during an open transaction have other
// keys, and must not wait for its end. Two producers with one key might therefore both find it free; then UX decides, and the second gets a
// duplicate (2601), which the caller repeats. The rows come in key order from the client, so that two statements with several keys in
// common meet them in one order.
//
// FORCESEEK with INDEX: error 8622 when an index is missing, never a silent scan that would lock the table. LOOP JOIN and FORCE ORDER: from
// the rows to the probes, with any statistics.
const enqueueNewText = settling + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
INSERT INTO {live} WITH (ROWLOCK) (id, priority, due_at, enqueued_at, expires_at, dedup_key, [type], headers, body)
OUTPUT inserted.id
` + enqueueSelect + newOnly + `;
`

const newOnly = `
  AND NOT EXISTS (
    SELECT 1
    FROM {live} AS e WITH (READCOMMITTEDLOCK, INDEX ({pk}), FORCESEEK)
    WHERE e.id = CONVERT(binary(16), SUBSTRING(v.m, 1, 16)))
  AND NOT EXISTS (
    SELECT 1
    FROM {live} AS e WITH (READCOMMITTEDLOCK, INDEX ({key}), FORCESEEK)
    WHERE e.dedup_key = v.k AND e.dedup_key IS NOT NULL)
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN)`

// enqueueGate runs before the INSERT of a send to an ordered queue: it takes the application lock that all senders share, and draws its
// number. After the INSERT, reads see its rows or are stopped by their locks, and it releases the application lock (closeGate), whenever
// its transaction ends. A send that fails in between, in a transaction of the caller, keeps it to the end of that transaction, and no read
// finds a watermark meanwhile.
const (
	enqueueGate = settling + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @gate nvarchar(255) = {gate};
DECLARE @granted int;
DECLARE @number bigint;
~BEGIN TRANSACTION;
EXEC @granted = sys.sp_getapplock @Resource = @gate, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = 10000;
IF @granted < 0
BEGIN
    THROW 51873, N'chanq: the application lock of senders was not granted within ten seconds', 1;
END;
SET @number = NEXT VALUE FOR {numbers};
`
	closeGate = `EXEC @granted = sys.sp_releaseapplock @Resource = @gate, @LockOwner = N'Transaction';
~COMMIT TRANSACTION;
`
)

// enqueueOrderedText and enqueueNewOrderedText are enqueueText and enqueueNewText of an ordered queue.
const (
	enqueueOrderedText = enqueueGate + `INSERT INTO {live} WITH (ROWLOCK) (id, due_at, enqueued_at, expires_at, slot, seq, fence, order_key, dedup_key, [type], headers, body)
` + enqueueOrderedSelect + `;
` + closeGate
	enqueueNewOrderedText = enqueueGate + `INSERT INTO {live} WITH (ROWLOCK) (id, due_at, enqueued_at, expires_at, slot, seq, fence, order_key, dedup_key, [type], headers, body)
OUTPUT inserted.id
` + enqueueOrderedSelect + newOnly + `;
` + closeGate

	// enqueueOrderedSelect: m has the fixed part of a plain mark, slot, place in the INSERT, length of the order key, order key and type.
	enqueueOrderedSelect = `SELECT CONVERT(binary(16), SUBSTRING(v.m, 1, 16)),
       @now,
       @now,
       CASE WHEN SUBSTRING(v.m, 26, 8) <> 0x0000000000000000
            THEN DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 30, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 26, 4)), @now)) END,
       CONVERT(smallint, SUBSTRING(v.m, 34, 2)),
       @number * 1048576 + CONVERT(int, SUBSTRING(v.m, 36, 4)),
       @number * 1048576 + CONVERT(int, SUBSTRING(v.m, 36, 4)),
       CASE WHEN SUBSTRING(v.m, 40, 1) <> 0x00 THEN SUBSTRING(v.m, 41, CONVERT(int, SUBSTRING(v.m, 40, 1))) END,
       v.k,
       CASE WHEN DATALENGTH(v.m) > 40 + CONVERT(int, SUBSTRING(v.m, 40, 1)) THEN SUBSTRING(v.m, 41 + CONVERT(int, SUBSTRING(v.m, 40, 1)), 100) END,
       v.h, v.b
FROM (VALUES {rows}) AS v (m, k, h, b)
WHERE v.m IS NOT NULL`
)

func (q *queue) Enqueue(rows []sqlbatch.Row) sqlbatch.Statement {
	if q.ordered {
		return q.enqueueOrdered(q.enqueue, rows, func(a, b placed) int { return build.CompareIDs(a.ID, b.ID) })
	}
	rows = build.InOrder(rows, func(a, b sqlbatch.Row) int { return build.CompareIDs(a.ID, b.ID) })
	return q.enqueueRows(q.enqueue, rows, packPlainMark)
}

// EnqueueBegun is Enqueue: on SQL Server a session without permissions cannot read the start time of its transaction.
func (q *queue) EnqueueBegun(rows []sqlbatch.Row) sqlbatch.Statement { return q.Enqueue(rows) }

// Begun has no text: EnqueueBegun draws the number.
func (q *queue) Begun() sqlbatch.Statement { return sqlbatch.Statement{} }

func (q *queue) EnqueueNew(rows []sqlbatch.Row) sqlbatch.Statement {
	if q.ordered {
		return q.enqueueOrdered(q.enqueueNew, rows, func(a, b placed) int {
			return cmp.Or(strings.Compare(a.Key, b.Key), build.CompareIDs(a.ID, b.ID))
		})
	}
	rows = build.InOrder(rows, func(a, b sqlbatch.Row) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), build.CompareIDs(a.ID, b.ID))
	})
	return q.enqueueRows(q.enqueueNew, rows, packPlainMark)
}

// placed is a row and its place among the rows of its INSERT.
type placed struct {
	*sqlbatch.Row
	place int
}

// enqueueOrdered inserts rows in an order other than that of their places.
func (q *queue) enqueueOrdered(texts []func() string, rows []sqlbatch.Row, order func(a, b placed) int) sqlbatch.Statement {
	moved := make([]placed, len(rows))
	for i := range rows {
		moved[i] = placed{&rows[i], i}
	}
	slices.SortStableFunc(moved, order)
	sorted := make([]sqlbatch.Row, len(rows))
	for i := range moved {
		sorted[i] = *moved[i].Row
	}
	next := 0
	return q.enqueueRows(texts, sorted, func(b []byte, r *sqlbatch.Row) []byte {
		b = binary.BigEndian.AppendUint16(packMark(b, r), uint16(r.Slot))
		b = binary.BigEndian.AppendUint32(b, uint32(moved[next].place))
		next++
		return append(append(append(b, byte(len(r.OrderKey))), r.OrderKey...), r.Type...)
	})
}

// packPlainMark packs m of a plain queue: the type follows the fixed part.
func packPlainMark(b []byte, r *sqlbatch.Row) []byte { return append(packMark(b, r), r.Type...) }

// enqueueRows fills the smallest size that holds the rows. The bodies are not copied.
func (q *queue) enqueueRows(texts []func() string, rows []sqlbatch.Row, pack func([]byte, *sqlbatch.Row) []byte) sqlbatch.Statement {
	i := bits.Len(uint(max(len(rows), 1) - 1))
	r := &q.batchSizes()[i]
	args := make([]any, 2, 2+len(r.unused))
	args[0], args[1] = texts[i](), r.declaration
	marks := make([]byte, 0, markBytes*len(rows))
	for n := range rows {
		row, names := &rows[n], r.names[4*n:]
		from := len(marks)
		marks = pack(marks, row)
		mark := marks[from:len(marks):len(marks)]
		key, headers := r.unused[4*n+1], r.unused[4*n+2]
		if row.Key != "" {
			key = sql.Named(names[1], []byte(row.Key))
		}
		if row.Headers != nil {
			headers = sql.Named(names[2], row.Headers)
		}
		body := row.Body
		if body == nil {
			body = []byte{}
		}
		args = append(args, sql.Named(names[0], mark), key, headers, sql.Named(names[3], body))
	}
	return sqlbatch.Statement{Text: "sp_executesql", Args: append(args, r.unused[4*len(rows):]...)}
}

// batchSize is one size of enqueue: ten texts serve every batch, while a text per count of rows would fill the plan cache. A row is four
// parameters: m (id, priority, delay, time to live and type), k (key), h (headers) and b (body).
type batchSize struct {
	rows        int
	values      string
	declaration string
	names       []string
	unused      []any // each parameter as a typed NULL: an untyped one is an nvarchar, error 257
}

// ladder has the sizes of 1, 2, 4 … maxRung rows, and orderedLadder those of ordered queues.
var (
	ladder        = sync.OnceValue(func() []batchSize { return rungsOf("varbinary(133)") })
	orderedLadder = sync.OnceValue(func() []batchSize { return rungsOf("varbinary(340)") })
)

func rungsOf(mark string) (batchSizes []batchSize) {
	for n := 1; n <= maxRung; n *= 2 {
		r := batchSize{rows: n}
		var values, declaration strings.Builder
		for i := range n {
			if i > 0 {
				values.WriteString(", ")
				declaration.WriteString(", ")
			}
			k := strconv.Itoa(i)
			values.WriteString("(@m" + k + ", @k" + k + ", @h" + k + ", @b" + k + ")")
			declaration.WriteString("@m" + k + " " + mark + ", @k" + k + " varbinary(200), @h" + k + " varbinary(max), @b" + k + " varbinary(max)")
			for _, letter := range []string{"m", "k", "h", "b"} {
				r.names = append(r.names, letter+k)
				r.unused = append(r.unused, sql.Named(letter+k, []byte(nil)))
			}
		}
		r.values, r.declaration = values.String(), declaration.String()
		batchSizes = append(batchSizes, r)
	}
	return batchSizes
}
