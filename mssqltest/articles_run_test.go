package mssqltest_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"
)

const processed = "SELECT work_queue_id FROM work_queue WHERE processed_flag = 1 ORDER BY work_queue_id"

// outcome is how a poll of article 000 ended.
type outcome struct {
	printed []string
	err     error
}

// startPoll runs a poll on a separate session and returns when waiting statements, including this one, are in WAITFOR.
func (s *site) startPoll(batch string, waiting int) <-chan outcome {
	s.t.Helper()
	c := s.connect()
	done := make(chan outcome, 1)
	go func() {
		printed, err := s.printed(c, batch)
		done <- outcome{printed, err}
	}()
	s.awaitWaiting(waiting)
	return done
}

func (s *site) requirePrinted(poll <-chan outcome, line string) {
	s.t.Helper()
	got := <-poll
	require.NoError(s.t, got.err)
	require.Equal(s.t, []string{line}, got.printed)
}

func TestArticle000WithoutHintsTwoPollersProcessTheSameItem(t *testing.T) {
	t.Parallel()
	s := newSite(t, "000_table.sql")
	poll := article(t, "000_poll_without_hints.sql")
	first, second := s.startPoll(poll, 1), s.startPoll(poll, 2)
	s.Clock().Advance(15 * time.Second)
	s.requirePrinted(first, "Processing A, work_queue_id = 1")
	s.requirePrinted(second, "Processing A, work_queue_id = 1")
	require.Equal(t, []string{"1"}, s.column(s.connect(), processed, 0))
}

func TestArticle000WithHintsEachPollerProcessesItsOwnItem(t *testing.T) {
	t.Parallel()
	s := newSite(t, "000_table.sql")
	poll := article(t, "000_poll_with_hints.sql")
	first, second, third := s.startPoll(poll, 1), s.startPoll(poll, 2), s.startPoll(poll, 3)
	s.Clock().Advance(15 * time.Second)
	s.requirePrinted(first, "Processing A, work_queue_id = 1")
	s.requirePrinted(second, "Processing B, work_queue_id = 2")
	s.requirePrinted(third, "Processing C, work_queue_id = 3")
	require.Equal(t, numbers(3), s.column(s.connect(), processed, 0))
}

// UPDLOCK without READPAST prevents the race, at the price of waiting: a session that refuses to wait gets 1222.
func TestArticle000WithUpdateLockAloneTheSecondPollerWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t, "000_table.sql")
	poll := strings.Replace(article(t, "000_poll_with_hints.sql"), "(UPDLOCK, READPAST)", "(UPDLOCK)", 1)
	first := s.startPoll(poll, 1)

	impatient := s.connect()
	s.exec(impatient, "SET XACT_ABORT ON; SET LOCK_TIMEOUT 0")
	_, err := s.printed(impatient, poll)
	requireNumber(t, 1222, err)

	s.Clock().Advance(15 * time.Second)
	s.requirePrinted(first, "Processing A, work_queue_id = 1")
	second := s.startPoll(poll, 1)
	s.Clock().Advance(15 * time.Second)
	s.requirePrinted(second, "Processing B, work_queue_id = 2")
	require.Equal(t, numbers(2), s.column(s.connect(), processed, 0))
}

func TestArticle000UpdateTopDeliversEachItemOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, "000_table.sql")
	take := article(t, "000_update_top.sql")

	a, b := s.begin(), s.begin()
	require.Equal(t, []string{"1"}, s.column(a, take, 0))
	require.Equal(t, []string{"2"}, s.column(b, take, 0), "it skips the item that the other has locked")
	require.NoError(t, b.Commit())
	require.NoError(t, a.Rollback())

	items := s.drain(4, 10, func(c *sql.Conn) ([]string, error) { return s.firstColumn(c, take) })
	require.ElementsMatch(t, append([]string{"1"}, numbers(11)[2:]...), items, "a message of a rolled back poll is redelivered")
	require.Empty(t, s.column(s.connect(), take, 0))
}

// messages inserts n messages, whose bodies are 1 to n, into article 001's table.
func (s *site) messages(n int) {
	s.t.Helper()
	c := s.connect()
	for i := range n {
		s.exec(c, fmt.Sprintf("INSERT INTO Messaging.Message (MessageId, MessageBody, EnqueueTime) "+
			"VALUES (NEWID(), CONVERT(varbinary(max), '%d'), DATEADD(second, %d, '2008-06-11T23:58:00'))", i+1, i))
	}
}

const dequeueThree = "EXEC Messaging.Message_DequeueBatch @BatchSize = 3"

func newMessaging(t *testing.T, n int, more ...string) *site {
	s := newSite(t)
	c := s.connect()
	for _, batch := range append([]string{
		"CREATE SCHEMA Messaging", article(t, "001_table.sql"), article(t, "001_dequeue_batch.sql"),
	}, more...) {
		s.exec(c, batch)
	}
	s.messages(n)
	return s
}

func TestArticle001TwoPollersGetDifferentMessagesAndDoNotWait(t *testing.T) {
	t.Parallel()
	s := newMessaging(t, 8)
	a, b := s.begin(), s.begin()
	first := s.column(a, dequeueThree, 1)
	require.Equal(t, numbers(3), first, "the oldest come first")
	// The sort reads, and therefore locks, all pending messages: with the table of the article the second poller might
	// find none. It must not find those of the first.
	second := s.column(b, dequeueThree, 1)
	for _, message := range first {
		require.NotContains(t, second, message)
	}
	require.NoError(t, a.Commit())
	require.NoError(t, b.Commit())

	rest := slices.Concat(first, second)
	for range 8 {
		c := s.begin()
		rest = append(rest, s.column(c, dequeueThree, 1)...)
		require.NoError(t, c.Commit())
	}
	require.ElementsMatch(t, numbers(8), rest)
	require.Equal(t, []string{"8"},
		s.column(s.connect(), "SELECT COUNT(*) FROM Messaging.Message WHERE DequeueTime IS NOT NULL", 0))
}

func TestArticle001AMessageOfARolledBackPollIsRedelivered(t *testing.T) {
	t.Parallel()
	s := newMessaging(t, 2)
	a := s.begin()
	require.Equal(t, numbers(2), s.column(a, dequeueThree, 1))
	require.NoError(t, a.Rollback())
	b := s.begin()
	require.Equal(t, numbers(2), s.column(b, dequeueThree, 1))
	require.NoError(t, b.Commit())
}

// The application lock protects the message even without a row lock.
func TestArticle001TheApplicationLockAloneKeepsAMessage(t *testing.T) {
	t.Parallel()
	s := newMessaging(t, 3)
	keeper := s.begin()
	require.Equal(t, []string{"0"}, s.column(keeper, `
		DECLARE @MessageId uniqueidentifier, @LockStatus int
		SELECT @MessageId = MessageId FROM Messaging.Message WHERE MessageBody = CONVERT(varbinary(max), '2')
		EXEC @LockStatus = sp_getapplock @MessageId, 'Exclusive', 'Transaction', 0
		SELECT @LockStatus`, 0))

	poller := s.begin()
	require.Equal(t, []string{"1", "3"}, s.column(poller, dequeueThree, 1))
	require.NoError(t, poller.Commit())
	require.NoError(t, keeper.Commit())
	poller = s.begin()
	require.Equal(t, []string{"2"}, s.column(poller, dequeueThree, 1))
	require.NoError(t, poller.Commit())
}

func TestArticle001ConcurrentlyEachMessageIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		index   []string
		victims bool // deadlock victims run again
	}{
		// Without an index the UPDATE of one message reads the others' rows.
		"with the table of the article": {victims: true},
		"with the missing primary key":  {index: []string{"CREATE UNIQUE CLUSTERED INDEX PK_Message ON Messaging.Message (MessageId)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const total = 30
			s := newMessaging(t, total, tc.index...)
			items := s.drain(4, total, func(c *sql.Conn) ([]string, error) {
				tx, err := c.BeginTx(s.ctx, nil)
				if err != nil {
					return nil, err
				}
				defer func() { _ = tx.Rollback() }()
				sets, err := s.try(tx, dequeueThree)
				if tc.victims && numberOf(err) == 1205 {
					return nil, nil
				}
				if err != nil {
					return nil, err
				}
				return columnOf(sets[0], 1), tx.Commit()
			})
			require.ElementsMatch(t, numbers(total), items)
		})
	}
}

const (
	jobType1 = "'AC351A46-49E4-4F0C-BF8C-F45255012150'"
	jobType2 = "'FB0F15E0-2A97-46A3-951B-6655E4D7A06A'"
)

func TestArticle002TestScriptEndsAsInTheArticle(t *testing.T) {
	t.Parallel()
	s := newSite(t, "002_queue.sql")
	c := s.connect()
	sets := s.query(c, article(t, "002_test.sql"))
	require.Len(t, sets, 14)
	for i, id := range numbers(6) {
		require.Equal(t, []string{id}, columnOf(sets[i], 0), "QueueJob gives the new id")
	}
	key := func(n int) string { return fmt.Sprintf("<info><key>%d</key></info>", n) }
	other := func(n int) string { return fmt.Sprintf("<info><anotherkey>%d</anotherkey></info>", n) }
	for i, want := range []struct {
		column int // JobInfo: the second column of ViewQueue, the first of GetNextJob
		jobs   []string
	}{
		{1, []string{key(4), key(5), other(422), key(6), other(893), key(8)}},
		{1, []string{key(4), key(5), key(6), key(8)}},
		{0, []string{key(4)}},
		{1, []string{key(5), key(6), key(8)}},
		{1, []string{other(422), other(893)}},
		{0, []string{other(422)}},
		{1, []string{other(893)}},
		{1, []string{key(5), key(6), other(893), key(8)}},
	} {
		require.Equal(t, want.jobs, columnOf(sets[6+i], want.column), "result %d", 6+i)
	}
	// After the clean-up a second start succeeds.
	for _, script := range []string{"002_cleanup.sql", "002_queue.sql"} {
		for _, batch := range articleBatches(t, script) {
			s.exec(c, batch)
		}
	}
}

func TestArticle002GetNextJobSkipsAJobThatAnotherIsTaking(t *testing.T) {
	t.Parallel()
	s := newSite(t, "002_queue.sql")
	c := s.connect()
	for i := range 3 {
		s.exec(c, fmt.Sprintf("EXEC QueueSample.QueueJob %s, '<job>%d</job>'", jobType1, i+1))
	}
	s.exec(c, fmt.Sprintf("EXEC QueueSample.QueueJob %s, '<job>other</job>'", jobType2))
	next := "EXEC QueueSample.GetNextJob " + jobType1
	a, b := s.begin(), s.begin()
	require.Equal(t, []string{"<job>1</job>"}, s.column(a, next, 0))
	require.Equal(t, []string{"<job>2</job>"}, s.column(b, next, 0))
	require.NoError(t, b.Commit())
	require.NoError(t, a.Rollback())
	items := s.drain(3, 2, func(c *sql.Conn) ([]string, error) { return s.firstColumn(c, next) })
	require.ElementsMatch(t, []string{"<job>1</job>", "<job>3</job>"}, items)
}

var article003 = []string{"003_table.sql", "003_enqueue.sql", "003_dequeue.sql", "003_complete.sql"}

func (s *site) enqueue(n int) {
	s.t.Helper()
	c := s.connect()
	for _, i := range numbers(n) {
		s.exec(c, fmt.Sprintf("DECLARE @m varbinary(max) = CONVERT(varbinary(max), '%s') EXEC EnqueueMessage @m", i))
	}
}

func TestArticle003AMessageIsTakenInOrderAndThenCompleted(t *testing.T) {
	t.Parallel()
	s := newSite(t, article003...)
	s.enqueue(3)
	c := s.connect()
	for id := range int64(2) {
		body := []byte(fmt.Sprint(id + 1))
		require.Equal(t, [][][]any{{{id + 1, body}}}, s.query(c, "EXEC DequeueMessage"))
	}
	s.exec(c, "EXEC CompleteMessage 1")
	s.exec(c, "EXEC CompleteMessage 3")
	require.Equal(t, []string{"2", "3"}, s.column(c, "SELECT Id FROM [Queue] ORDER BY Id", 0),
		"only a message that was taken can be completed")
	require.Equal(t, []string{"3"}, s.column(c, "EXEC DequeueMessage", 0))
	require.Empty(t, s.column(c, "EXEC DequeueMessage", 0))
}

func TestArticle003ConsumersDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	s := newSite(t, article003...)
	s.enqueue(3)
	a, b := s.begin(), s.begin()
	require.Equal(t, []string{"1"}, s.column(a, "EXEC DequeueMessage", 0))
	require.Equal(t, []string{"2"}, s.column(b, "EXEC DequeueMessage", 0))
	require.NoError(t, b.Commit())
	require.NoError(t, a.Rollback())
	require.Equal(t, []string{"1"}, s.column(s.connect(), "EXEC DequeueMessage", 0))
}

func TestArticle003ConcurrentlyEachMessageIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	const total = 30
	s := newSite(t, article003...)
	s.enqueue(total)
	items := s.drain(4, total, func(c *sql.Conn) ([]string, error) { return s.firstColumn(c, "EXEC DequeueMessage") })
	require.ElementsMatch(t, numbers(total), items)
}

const getJob = "EXEC dbo.usp_API_Get_Job 'worker'"

// newJobQueue creates a procedure to alter, and one job of each priority.
func newJobQueue(t *testing.T, priorities ...int) *site {
	s := newSite(t, "004_table.sql")
	c := s.connect()
	s.exec(c, "CREATE PROCEDURE dbo.usp_API_Get_Job AS SELECT 1")
	for _, batch := range articleBatches(t, "004_get_job.sql") {
		s.exec(c, batch)
	}
	for _, p := range priorities {
		s.exec(c, fmt.Sprintf("INSERT INTO Job_Queue (Priority, Payload) VALUES (%d, 'of priority %d')", p, p))
	}
	return s
}

func TestArticle004JobsComeByPriority(t *testing.T) {
	t.Parallel()
	s := newJobQueue(t, 3, 1, 2)
	c := s.connect()
	require.Equal(t, []string{"of priority 1"}, s.column(c, getJob, 1))
	require.ElementsMatch(t, []string{"of priority 2", "of priority 3"}, s.column(c, getJob+", 5", 1), "up to five at once")
	require.Empty(t, s.column(c, getJob, 0))
	s.exec(c, "INSERT INTO Job_Queue (Attempts) VALUES (0)")
	require.Equal(t, []string{"a piece of work in the queue"}, s.column(c, getJob, 1))
	require.Equal(t, []string{"worker", "worker", "worker", "worker"},
		s.column(c, "SELECT Processing_Server FROM Job_Queue", 0))
}

func TestArticle004AnUnfinishedJobIsRedeliveredThreeTimes(t *testing.T) {
	t.Parallel()
	s := newJobQueue(t, 1)
	c := s.connect()
	for range 3 {
		require.Equal(t, []string{"1"}, s.column(c, getJob, 0))
		s.Clock().Advance(14 * time.Minute)
		require.Empty(t, s.column(c, getJob, 0), "its quarter of an hour has not passed")
		s.Clock().Advance(time.Minute)
	}
	require.Empty(t, s.column(c, getJob, 0))
	require.Equal(t, []string{"3"}, s.column(c, "SELECT Attempts FROM Job_Queue", 0))
}

func TestArticle004AFinishedJobIsNotRedelivered(t *testing.T) {
	t.Parallel()
	s := newJobQueue(t, 1)
	c := s.connect()
	require.Equal(t, []string{"1"}, s.column(c, getJob, 0))
	s.Clock().Advance(time.Minute)
	s.exec(c, "UPDATE Job_Queue SET Last_Attempt_End_Date = GETDATE() WHERE ID = 1")
	s.Clock().Advance(time.Hour)
	require.Empty(t, s.column(c, getJob, 0))
}

func TestArticle004ConcurrentlyEachJobIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	const total = 30
	s := newJobQueue(t, make([]int, total)...)
	items := s.drain(4, total, func(c *sql.Conn) ([]string, error) { return s.firstColumn(c, getJob) })
	require.ElementsMatch(t, numbers(total), items)
}

// firstColumn returns the first column of the batch's first result set.
func (s *site) firstColumn(on session, batch string) ([]string, error) {
	sets, err := s.try(on, batch)
	if err != nil {
		return nil, err
	}
	return columnOf(sets[0], 0), nil
}

// numberOf returns the server's number of err, 0 if it has none.
func numberOf(err error) int32 {
	var e mssql.Error
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

func requireNumber(t *testing.T, number int32, err error) {
	t.Helper()
	require.Equal(t, number, numberOf(err), "%v", err)
}
