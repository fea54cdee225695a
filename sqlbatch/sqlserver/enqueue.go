package sqlserver

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// maxRung: 512 rows are up to 2,050 parameters, and sp_executesql accepts 2,098.
const maxRung = 512

// enqueueText inserts into the clustered key (PK), the index of due times (IX) and, for rows with a key, the filtered index of keys (UX).
// It takes an X lock on each new key and nothing else. Fence, attempts, lapses and the end of the lease begin with their defaults, and so
// does each column that no row of the batch has.
//
// It waits for a reader that holds the range of a new key (SERIALIZABLE), and for a transaction that has stored the same id or key.
//
// ROWLOCK: a page lock would stop claimers, whose READPAST skips only row locks. Rows of VALUES that have no id are unused. The rows come
// in id order from the client; an ORDER BY would sort the bodies on the server and reserve memory for that.
//
// The commit does not use delayed durability: a lost row would be a lost message. If the database forces it on every commit, no statement
// can prevent it, and Problems reports it.
const enqueueText = settling + now + `{enter}INSERT INTO {live} WITH (ROWLOCK) ({columns})
SELECT {values}
FROM (VALUES {rows}) AS v ({parameters})
WHERE ` + rowGiven + `;
{leave}`

// enqueueNewText inserts the rows whose id and key do not exist yet. It first notes which ones these are, and then inserts them: a
// statement that reads the table into which it inserts copies its rows, with their bodies, into a spool between the two.
//
// The probe for the id seeks the clustered key. READCOMMITTEDLOCK makes it wait for an insert of the same id that is still in progress (an
// earlier attempt whose outcome is unknown), which row versions would not show. It takes no range lock: the gap after the last id is where
// every producer inserts. An attempt that starts between probe and insert causes a duplicate (2627).
//
// The probe for the key seeks UX; `e.dedup_key IS NOT NULL` lets the optimizer use that filtered index. It waits only for an insert or a
// delete of the same key that is in progress. It locks no range: messages that are inserted and acked during an open transaction have other
// keys, and must not wait for its end. Two producers with one key might therefore both find it free; then UX decides, and the second gets a
// duplicate (2601), which the caller repeats. The rows come in key order from the client, so that two statements with several keys in
// common meet them in one order. On an ordered queue a probe waits before the gate, where it stops no other sender.
//
// FORCESEEK with INDEX: error 8622 when an index is missing, never a silent scan that would lock the table. LOOP JOIN and FORCE ORDER: from
// the rows to the probes, with any statistics.
const enqueueNewText = settling + `{over}DECLARE @new TABLE (n int NOT NULL PRIMARY KEY CLUSTERED);
INSERT INTO @new (n)
SELECT v.n
FROM (VALUES {probes}) AS v ({probed})
WHERE ` + rowGiven + `
  AND NOT EXISTS (
    SELECT 1
    FROM {live} AS e WITH (READCOMMITTEDLOCK, INDEX ({pk}), FORCESEEK)
    WHERE e.id = ` + rowID + `){keyless}
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
{now}{enter}INSERT INTO {live} WITH (ROWLOCK) ({columns})
OUTPUT inserted.id{returned}
SELECT {values}
FROM (VALUES {rows}) AS v ({parameters})
INNER JOIN @new AS w ON w.n = v.n
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
{leave}`

// enqueueOverText first notes which live messages have the keys of rows: an S lock on an entry of UX must not be held during a wait for
// the row, which an ack locks before its entries. It then locks these rows by PK, in the order of keys, and looks again whether a
// consumer leases them. A leased one loses its key, and another one is kept or replaced. Then follows enqueueNewText. A row that is leased
// meanwhile keeps its key, and the INSERT leaves it out.
//
// All of it is one transaction: a lock that is not granted at the end undoes what the statements before have changed.
//
// It reads no body: producers need not have that permission.
const enqueueOverText = `~BEGIN TRANSACTION;
DECLARE @met TABLE (n int NOT NULL PRIMARY KEY CLUSTERED, id binary(16) NOT NULL);
INSERT INTO @met (n, id)
SELECT v.n, k.id
FROM (VALUES {probes}) AS v ({probed})
INNER JOIN {live} AS k WITH (READCOMMITTEDLOCK, INDEX ({key}), FORCESEEK) ON k.dedup_key = v.k AND k.dedup_key IS NOT NULL
WHERE ` + rowGiven + `
  AND NOT EXISTS (
    SELECT 1
    FROM {live} AS e WITH (READCOMMITTEDLOCK, INDEX ({pk}), FORCESEEK)
    WHERE e.id = ` + rowID + `)
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
UPDATE q
SET dedup_key = NULL
FROM @met AS w
INNER JOIN {live} AS q WITH (UPDLOCK, ROWLOCK, INDEX ({pk}), FORCESEEK) ON q.id = w.id
WHERE q.dedup_key IS NOT NULL AND q.leased_by IS NOT NULL
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
` + now + `UPDATE q
SET {set}
OUTPUT inserted.id, inserted.dedup_key
FROM (VALUES {rows}) AS v ({parameters})
INNER JOIN @met AS w ON w.n = v.n
INNER JOIN {live} AS q WITH (UPDLOCK, ROWLOCK, INDEX ({pk}), FORCESEEK) ON q.id = w.id
WHERE q.dedup_key IS NOT NULL AND q.leased_by IS NULL
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
`

const (
	// keeping locks the message: a claim before the end of the transaction would handle the state before it. It expires at the later of the
	// two ends, NULL for never, so that the second send is handled in its time.
	keeping = `expires_at = CASE
        WHEN q.expires_at > ` + markedExpiry + ` THEN q.expires_at
        WHEN q.expires_at IS NOT NULL THEN ` + markedExpiry + ` END`

	// replacing keeps the due time, but a message that moves to another priority is not due before now, where a claim begins to read. A
	// message that waits longer than @most is due. The time to live of a message that is due later begins then.
	replacing = `fence = q.fence + 1,
    attempts = 0,
    lapses = 0,
    last_error = NULL,
    history = NULL,
    priority = ` + markedPriority + `,
    due_at = CASE
        WHEN ` + latest + ` > ` + markedDue + ` THEN ` + markedDue + `
        WHEN ` + latest + ` > @now THEN ` + latest + `
        WHEN q.due_at > @now AND @most IS NOT NULL THEN @now
        WHEN q.due_at < @now AND q.priority <> ` + markedPriority + ` THEN @now
        ELSE q.due_at END,
    expires_at = CASE WHEN @most IS NULL AND q.due_at > @now THEN ` + markedLater + ` ELSE ` + markedExpiry + ` END,
    [type] = ` + markedType + `,
    headers = v.h,
    body = v.b`

	latest = `DATEADD(millisecond, CONVERT(int, SUBSTRING(@most, 5, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@most, 1, 4)), q.enqueued_at))`
)

const (
	now     = "DECLARE @now datetime2(3) = SYSUTCDATETIME();\n"
	keyless = `
  AND NOT EXISTS (
    SELECT 1
    FROM {live} AS e WITH (READCOMMITTEDLOCK, INDEX ({key}), FORCESEEK)
    WHERE e.dedup_key = v.k AND e.dedup_key IS NOT NULL)`
)

// enqueueGate runs before the INSERT of a send to an ordered queue: it takes the application lock that all senders share, and draws its
// number. After the INSERT, reads see its rows or are stopped by their locks, and it releases the application lock (closeGate), whenever
// its transaction ends. A send that fails in between, in a transaction of the caller, keeps it to the end of that transaction, and no read
// finds a watermark meanwhile.
const (
	enqueueGate = `DECLARE @gate nvarchar(255) = {gate};
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

// A row of VALUES is a list of ids (i), the number of the row (n), and a parameter for each part of the row that has one. The first 256 ids
// are in the list @i, the others in @j.
const (
	idsOfList = 256
	rowID     = `CONVERT(binary(16), SUBSTRING(v.i, 16 * (v.n % 256) + 1, 16))`
	rowGiven  = `v.n % 256 < DATALENGTH(v.i) / 16`
)

// The values in m of a row of a plain queue.
const (
	markedPriority = `CONVERT(smallint, SUBSTRING(v.m, 1, 1)) - 1`
	markedDue      = `DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 6, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 2, 4)), @now))`
	markedExpiry   = `CASE WHEN SUBSTRING(v.m, 10, 8) <> 0x0000000000000000
            THEN DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 14, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 10, 4)), @now)) END`
	markedLater = `CASE WHEN SUBSTRING(v.m, 10, 8) <> 0x0000000000000000
            THEN DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 14, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 10, 4)), q.due_at)) END`
	markedType = `CASE WHEN DATALENGTH(v.m) > 17 THEN SUBSTRING(v.m, 18, 100) END`
)

// rowPart has columns of a row, which a batch sends if one of its rows has a value there. ID and body are always sent.
type rowPart struct {
	parameter, kind string // of each row; "" is none
	columns, values string
}

var (
	// bareParts: the messages are due now, and nothing else distinguishes them.
	bareParts = rowPart{"", "", "id, due_at, enqueued_at", rowID + `, @now, @now`}
	// markParts: m has priority + 1, delay, time to live and type.
	markParts = rowPart{"m", "varbinary(117)", "id, priority, due_at, enqueued_at, expires_at, [type]", rowID + `,
       ` + markedPriority + `,
       ` + markedDue + `,
       @now,
       ` + markedExpiry + `,
       ` + markedType}
	// orderedParts: m has time to live, slot, place in the INSERT, length of the order key, order key and type.
	orderedParts = rowPart{"m", "varbinary(315)", "id, due_at, enqueued_at, expires_at, slot, seq, fence, order_key, [type]", rowID + `,
       @now,
       @now,
       CASE WHEN SUBSTRING(v.m, 1, 8) <> 0x0000000000000000
            THEN DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 5, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 1, 4)), @now)) END,
       CONVERT(smallint, SUBSTRING(v.m, 9, 2)),
       @number * 1048576 + CONVERT(int, SUBSTRING(v.m, 11, 4)),
       @number * 1048576 + CONVERT(int, SUBSTRING(v.m, 11, 4)),
       CASE WHEN SUBSTRING(v.m, 15, 1) <> 0x00 THEN SUBSTRING(v.m, 16, CONVERT(int, SUBSTRING(v.m, 15, 1))) END,
       CASE WHEN DATALENGTH(v.m) > 15 + CONVERT(int, SUBSTRING(v.m, 15, 1)) THEN SUBSTRING(v.m, 16 + CONVERT(int, SUBSTRING(v.m, 15, 1)), 100) END`}
	keyParts    = rowPart{"k", "varbinary(200)", "dedup_key", "v.k"}
	headerParts = rowPart{"h", "varbinary(max)", "headers", "v.h"}
	bodyParts   = rowPart{"b", "varbinary(max)", "body", "v.b"}
)

// insertShape is what the text of an enqueue depends on. There are ten sizes, since a text per count of rows would fill the plan cache, and
// eight combinations of columns. The messages of a queue usually have one or two of these. An enqueueOverText has all columns.
type insertShape struct {
	fresh               bool                 // enqueueNewText
	over                sqlbatch.OnDuplicate // KeepQueued or Replace: with enqueueOverText
	size                int                  // a power of two
	mark, keys, headers bool
}

// insert is a rendered enqueue.
type insert struct{ text, declaration string }

// inserts renders the enqueues of a queue when they are first used.
type inserts struct {
	ordered bool
	render  func(template string) string
	of      sync.Map // insertShape → insert
}

func (s *inserts) get(shape insertShape) insert {
	known, ok := s.of.Load(shape)
	if !ok {
		known, _ = s.of.LoadOrStore(shape, s.make(shape))
	}
	return known.(insert)
}

func (s *inserts) make(shape insertShape) insert {
	parts := []rowPart{bareParts}
	if shape.mark {
		parts[0] = markParts
	}
	template, enter, leave := enqueueText, "", ""
	if s.ordered {
		parts[0], enter, leave = orderedParts, enqueueGate, closeGate
	}
	probed, probe := "i, n", ""
	if shape.keys {
		parts, probed, probe = append(parts, keyParts), "i, n, k", keyless
	}
	if shape.headers {
		parts = append(parts, headerParts)
	}
	parts = append(parts, bodyParts)
	if shape.fresh {
		over, when, returned := "", now, ""
		if set, is := map[sqlbatch.OnDuplicate]string{sqlbatch.KeepQueued: keeping, sqlbatch.Replace: replacing}[shape.over]; is {
			over, when, returned, leave = strings.Replace(enqueueOverText, "{set}", set, 1), "", ", inserted.dedup_key", "~COMMIT TRANSACTION;\n"
		}
		template = strings.NewReplacer("{over}", over, "{now}", when, "{returned}", returned).Replace(enqueueNewText)
	}

	var columns, values []string
	parameters, declaration := "i, n", "@i varbinary(8000)"
	if shape.size > idsOfList {
		declaration += ",@j varbinary(8000)"
	}
	if shape.over == sqlbatch.Replace {
		declaration += ",@most varbinary(8)"
	}
	for _, p := range parts {
		columns, values = append(columns, p.columns), append(values, p.values)
		if p.parameter != "" {
			parameters += ", " + p.parameter
		}
	}
	var rows, probes, declared strings.Builder
	for n := range shape.size {
		k := strconv.Itoa(n)
		id := "(@" + string("ij"[n/idsOfList]) + "," + k
		if n > 0 {
			id = "," + id
		}
		rows.WriteString(id)
		probes.WriteString(id)
		for _, p := range parts {
			if p.parameter != "" {
				rows.WriteString(",@" + p.parameter + k)
				declared.WriteString(",@" + p.parameter + k + " " + p.kind)
			}
		}
		rows.WriteString(")")
		if shape.keys {
			probes.WriteString(",@k" + k)
		}
		probes.WriteString(")")
	}
	filled := build.NewWords(
		"{enter}", enter, "{leave}", leave, "{keyless}", probe, "{probed}", probed, "{probes}", probes.String(),
		"{columns}", strings.Join(columns, ", "), "{values}", strings.Join(values, ", "), "{parameters}", parameters, "{rows}", rows.String(),
	).Replace(template)
	return insert{s.render(filled), declaration + declared.String()}
}

func (q *queue) Enqueue(rows []sqlbatch.Row) sqlbatch.Statement {
	return q.enqueueRows(insertShape{}, nil, rows, func(a, b placed) int { return build.CompareIDs(a.ID, b.ID) })
}

// EnqueueBegun is Enqueue: on SQL Server a session without permissions cannot read the start time of its transaction.
func (q *queue) EnqueueBegun(rows []sqlbatch.Row) sqlbatch.Statement { return q.Enqueue(rows) }

// Begun has no text: EnqueueBegun draws the number.
func (q *queue) Begun() sqlbatch.Statement { return sqlbatch.Statement{} }

func (q *queue) EnqueueNew(rows []sqlbatch.Row) sqlbatch.Statement {
	return q.enqueueRows(insertShape{fresh: true}, nil, rows, byKey)
}

func byKey(a, b placed) int {
	return cmp.Or(strings.Compare(a.Key, b.Key), build.CompareIDs(a.ID, b.ID))
}

func (q *queue) EnqueueOver(rows []sqlbatch.Row) sqlbatch.Statement {
	if q.ordered {
		return sqlbatch.Statement{}
	}
	does, most := build.Over(rows)
	var span []byte
	if ms, bounded := most.(int64); bounded {
		span = packSpan(nil, ms)
	}
	shape := insertShape{fresh: true, over: min(does, sqlbatch.Replace), mark: true, keys: true, headers: true}
	return q.enqueueRows(shape, span, rows, byKey)
}

// placed is a row and its place among the rows of its INSERT, which are stored in another order.
type placed struct {
	*sqlbatch.Row
	place int
}

// enqueueRows fills the smallest size that holds the rows. The bodies are not copied. The parameters have no names: these would cost the
// client five allocations per row. most is @most.
func (q *queue) enqueueRows(shape insertShape, most []byte, rows []sqlbatch.Row, order func(a, b placed) int) sqlbatch.Statement {
	shape.size, shape.mark = 1<<bits.Len(uint(max(len(rows), 1)-1)), shape.mark || q.ordered
	sorted := make([]placed, len(rows))
	for i := range rows {
		r := &rows[i]
		sorted[i] = placed{r, i}
		shape.mark = shape.mark || r.Priority != 0 || r.Delay > 0 || r.TTL > 0 || r.Type != ""
		shape.keys = shape.keys || r.Key != ""
		shape.headers = shape.headers || r.Headers != nil
	}
	if !slices.IsSortedFunc(sorted, order) {
		slices.SortStableFunc(sorted, order)
	}
	ids := make([]byte, 0, idBytes*len(rows))
	for _, r := range sorted {
		ids = append(ids, r.ID[:]...)
	}
	st := q.inserts.get(shape)
	args := append(make([]any, 0, 4+4*shape.size), st.text, st.declaration, ids[:min(len(ids), idBytes*idsOfList)])
	if shape.size > idsOfList {
		args = append(args, ids[idBytes*idsOfList:])
	}
	if shape.over == sqlbatch.Replace {
		args = append(args, most)
	}
	var marks []byte
	for i := range shape.size {
		var mark, key, headers, body []byte // a typed NULL each: an untyped one is an nvarchar, error 257
		if i < len(sorted) {
			r := sorted[i]
			from := len(marks)
			marks = q.appendMark(marks, r)
			mark, headers, body = marks[from:len(marks):len(marks)], r.Headers, r.Body
			if r.Key != "" {
				key = []byte(r.Key)
			}
			if body == nil {
				body = []byte{}
			}
		}
		if shape.mark {
			args = append(args, mark)
		}
		if shape.keys {
			args = append(args, key)
		}
		if shape.headers {
			args = append(args, headers)
		}
		args = append(args, body)
	}
	return sqlbatch.Statement{Text: "sp_executesql", Args: args}
}

// appendMark appends m of a row. A time to live of 0 means none.
func (q *queue) appendMark(b []byte, r placed) []byte {
	if q.ordered {
		b = packSpan(b, build.Milliseconds(r.TTL))
		b = binary.BigEndian.AppendUint16(b, uint16(r.Slot))
		b = binary.BigEndian.AppendUint32(b, uint32(r.place))
		b = append(append(b, byte(len(r.OrderKey))), r.OrderKey...)
	} else {
		b = append(b, byte(r.Priority-sqlbatch.PriorityLow))
		b = packSpan(packSpan(b, build.Milliseconds(r.Delay)), build.Milliseconds(r.TTL))
	}
	return append(b, r.Type...)
}
