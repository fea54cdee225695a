package sqlserver

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// A watch is one request for all queues of a process. It takes a listener slot of each, reads them until one has a
// message, with a WAITFOR between the reads, releases the slots and returns what it found. The server polls, not a
// client over the network, and at most sqlbatch.WatchListeners sessions poll each queue, for any number of idle
// processes.
//
// Two drawbacks of a comparable watch do not apply. It only reads, and holds nothing between two looks: no lock, no
// transaction, no version of a row. And it does not run for every process.
//
// It does use the worker thread of the request, which the server might take away when it has too few, and its reads,
// each of which counts as executions of the statements inside.
//
// The listener slots are application locks of the session. They need no permission and no row, are separate from those
// of other databases, and end with the session. The request that took them releases them, so a stopped process keeps a
// slot only until the end of its request. An error or an attention ends the request before that: then its session must
// be closed.
//
// LOCK_TIMEOUT: a read skips locked rows, and waits only for transactions that change the table itself. These end the
// request for all of its queues with error 1222.
const watchOpen = settling + `DECLARE @epoch datetime2(3) = '19700101';
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @until datetime2(3) = DATEADD(millisecond, @most_ms, @now);
DECLARE @late datetime2(3) = DATEADD(millisecond, -{margin}, @now);
DECLARE @granted int;
DECLARE @listeners int = 0;
DECLARE @any int = 0;
`

// watchAcquire takes a listener slot of the queue, if the queue is to be read. @listener is NULL without one. The
// session with the second slot leaves messages to the session with the first: it returns only after @after further
// reads that find one. A message therefore wakes one process, and another one only if that is too slow.
const watchAcquire = `DECLARE @listener{i} nvarchar(255);
DECLARE @after{i} int = 0;
DECLARE @seen{i} int = 0;
DECLARE @found{i} int = 0;
DECLARE @first{i} datetime2(3);
{head}IF CONVERT(int, SUBSTRING(@queues, {look}, 1)) = 1
BEGIN
    SET @listener{i} = {first listener};
    EXEC @granted = sys.sp_getapplock @Resource = @listener{i}, @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0;
    IF @granted < 0
    BEGIN
        SET @listener{i} = {second listener};
        SET @after{i} = {after};
        EXEC @granted = sys.sp_getapplock @Resource = @listener{i}, @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0;
    END;
    IF @granted < 0
        SET @listener{i} = NULL;
    IF @granted >= 0
        SET @listeners = @listeners + 1;
END;
`

// watchLook is a look at one queue: that of nextDueText, for messages that are due by now. It reads all priorities from
// one head, which it then moves: to a HeadMargin before the first message that can be claimed, or before the look if
// there is none. A message that is committed after the look is due at the head or later, if its commit takes less than
// a HeadMargin. Each look reads leased and locked messages between the head and now again. Messages that are released
// to a time before the head are found by rescans of the consumers, not here.
const watchLook = `    IF @listener{i} IS NOT NULL
    BEGIN
        SET @first{i} = (
            SELECT MIN(f.due_at)
            FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
            CROSS APPLY (
                SELECT TOP (1) q.due_at
                FROM ` + looked + `
                WHERE q.priority = p.priority AND q.due_at >= @head{i} AND q.due_at <= @now AND q.lease_until <= @now
                ORDER BY q.due_at, q.id) AS f);
        SET @seen{i} = CASE WHEN @first{i} IS NULL THEN 0 ELSE @seen{i} + 1 END;
        SET @head{i} = CASE WHEN @first{i} IS NULL THEN @late ELSE DATEADD(millisecond, -{margin}, @first{i}) END;
        IF @seen{i} > @after{i} AND ` + notPaused + `
        BEGIN
            SET @found{i} = 1;
            SET @any = 1;
        END;
    END;
`

const (
	watchPause = `    IF @any = 1 OR @now >= @until
        BREAK;
    WAITFOR DELAY @every;
    SET @now = SYSUTCDATETIME();
    SET @late = DATEADD(millisecond, -{margin}, @now);
END;
`
	watchRelease = `IF @listener{i} IS NOT NULL
    EXEC @granted = sys.sp_releaseapplock @Resource = @listener{i}, @LockOwner = N'Session';
`
	watchRow = `({i}, CASE WHEN @listener{i} IS NULL THEN 0 ELSE 1 END, @found{i}, DATEDIFF_BIG(millisecond, '19700101', @head{i}))`
)

// secondAfter looks take longer than a claim over a network.
const secondAfter = 4

const (
	watchDeclaration = "@queues varbinary(8000), @every varchar(12), @most_ms int"
	watchedBytes     = 1 + 8 // whether to look, and the head
)

// watchText names each queue in one statement of each kind, in their order.
func watchText(queues []sqlbatch.Watched) string {
	var open, look, rise strings.Builder
	rows := make([]string, len(queues))
	for i, w := range queues {
		head := headText(fmt.Sprintf("@head%d", i), "@queues", watchedBytes*i+1)
		place := strings.NewReplacer("{i}", strconv.Itoa(i), "{look}", strconv.Itoa(watchedBytes*i+1), "{head}", head, "{after}", strconv.Itoa(secondAfter))
		named := names(w.Names)
		render := func(template string) string { return named.Replace(place.Replace(template)) }
		open.WriteString(render(watchAcquire))
		look.WriteString(render(watchLook))
		rise.WriteString(render(watchRelease))
		rows[i] = render(watchRow)
	}
	always := names(sqlbatch.Names{})
	return always.Replace(alone(watchOpen)) + open.String() + "WHILE @listeners > 0\nBEGIN\n" + look.String() + always.Replace(watchPause) + rise.String() +
		"SELECT w.place, w.seated, w.found, w.head\nFROM (VALUES " + strings.Join(rows, ", ") + ") AS w (place, seated, found, head);\n"
}

func (dialect) Watch(queues []sqlbatch.Watched, every, atMost time.Duration) sqlbatch.Statement {
	queues = queues[:min(len(queues), sqlbatch.MostWatched)]
	list := make([]byte, 0, watchedBytes*len(queues))
	for _, w := range queues {
		var look byte
		if w.Look {
			look = 1
		}
		head := w.Head
		if head == 0 {
			head = noEnd // the statement limits it to a HeadMargin before now
		}
		list = packSpan(append(list, look), min(head, noEnd))
	}
	return call(watchText(queues), watchDeclaration,
		sql.Named("queues", list),
		sql.Named("every", clockTime(every)),
		sql.Named("most_ms", int32(build.Milliseconds(min(atMost, time.Hour)))))
}

// clockTime returns a time to wait as WAITFOR reads it, less than a minute. It rounds to milliseconds, and the server
// to a third of ten.
func clockTime(d time.Duration) string {
	ms := min(max(1, d.Milliseconds()), 59_999)
	return fmt.Sprintf("00:00:%02d.%03d", ms/1000, ms%1000)
}
