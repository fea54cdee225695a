// Package sqlserver builds the SQL of chanq for SQL Server.
package sqlserver

import (
	"strconv"
	"strings"
	"sync"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
	"github.com/chanq/chanq/sqlbatch/internal/seal"
)

// Dialect is the SQL of SQL Server 2016 SP1 and later and of Azure SQL, for the driver github.com/microsoft/go-mssqldb.
//
// Every statement is a call of sp_executesql by name with an explicit declaration string. By default the driver declares each []byte
// and string by its length, and each length is a separate plan. Parameters have names other than @p0, @p1 …, which the driver uses
// for values without a name.
var Dialect sqlbatch.Dialect = dialect{}

type dialect struct{ seal.Seal }

func (dialect) Name() string { return "sqlserver" }

func (dialect) Traits() sqlbatch.Traits {
	return sqlbatch.Traits{
		Schema: "dbo",

		WatermarkFirst: true,

		Remedies:        remedies,
		EnqueueRows:     maxRung,
		ClaimRows:       1000, // one lock per row, and no other that lasts: far below the threshold of lock escalation
		AckItems:        listBytes / itemBytes,
		NackItems:       listBytes / nackBytes,
		DeadLetterItems: listBytes / deadLetterBytes,
		FindIDs:         listRecords,
	}
}

var remedies = map[string]string{
	sqlbatch.ProblemDurability: "ALTER DATABASE CURRENT SET DELAYED_DURABILITY = ALLOWED, or DISABLED",
	sqlbatch.ProblemTable:      "a view or a synonym cannot have the indexes and hints of chanq: give Config.Schema and the database of the table itself, or rename the object and run chanq.Migrate",
}

// queue has the statements of one queue, every text rendered.
type queue struct {
	seal.Seal
	inserts                 *inserts
	find, look              string
	claim, claimPast        string // claimPast: also past readers
	contents                string
	nextDue, rescan, rescue string
	dueOrLocked             string

	ack, archive, nack, snooze, release, deadLetter, extend string

	version, record, stats, get, cancel, runNow, surrender string
	peek, browse, purge                                    map[sqlbatch.State]string
	redrive, redriveIDs                                    string
	configure, pause, resume                               string
	trim                                                   map[sqlbatch.State]string
	discard, queues, lock, drop                            string
	causes, deaths, walk, walkGroup, walkBare              string
	bodies                                                 map[bool]string // true: of dead messages
	problems, missing, clock, empty, part                  string
	join, leave, consumers                                 string
	sample, counted, samples, thin                         string

	// For an ordered queue.
	slots, takeSlots, giveSlots, slotStats, reach string
	ordered                                       bool
	readers

	tx   func() *queue // the queue for a transaction of the caller; there it returns itself
	own  func() *queue // the queue for a transaction of chanq's own
	skip func() *queue // the queue with settles that also skip rows that readers have locked; there it returns itself
}

// Queue renders the texts for a transaction of the caller at their first use: many programs never need them.
func (dialect) Queue(n sqlbatch.Names) sqlbatch.Queue {
	r := newRenderer(n)
	bounded := func(template string) string { return "SET LOCK_TIMEOUT {wait};\n" + within(template) }
	// passing returns the queue whose settles also skip rows that readers have locked.
	passing := func(of func() *queue, form func(string) string) (skip func() *queue) {
		skip = sync.OnceValue(func() *queue {
			q := *of()
			q.settles(func(template string) string { return r.Replace(skipping(form(template), "XLOCK")) })
			q.skip = skip
			return &q
		})
		return skip
	}
	var tx, own func() *queue
	tx = sync.OnceValue(func() *queue {
		q := newQueue(r.ordered, func(template string) string { return r.Replace(waiting(within(template))) })
		q.tx, q.own, q.skip = tx, own, passing(tx, within)
		return q
	})
	own = sync.OnceValue(func() *queue {
		q := newQueue(r.ordered, func(template string) string { return r.Replace(skipping(bounded(template), "UPDLOCK")) })
		q.tx, q.own, q.skip = tx, own, passing(own, bounded)
		return q
	})
	q := newQueue(r.ordered, func(template string) string { return r.Replace(skipping(alone(template), "UPDLOCK")) })
	q.tx, q.own, q.skip = tx, own, passing(func() *queue { return q }, alone)
	return q
}

// settles renders the statements that might meet a row that another transaction has locked.
func (q *queue) settles(render func(template string) string) {
	q.ack = render(ackText)
	q.archive = render(archiveText)
	nack, snooze := nackTexts(nackText, "q.attempts - q.lapses")
	q.nack, q.snooze = render(nack), render(snooze)
	q.release = render(releaseText)
	q.deadLetter = render(deadLetterText)
	q.extend = render(extendText)
	if q.ordered {
		q.orderedSettles(render)
	}
}

func newQueue(ordered bool, render func(template string) string) *queue {
	q := &queue{
		ordered:     ordered,
		inserts:     &inserts{ordered: ordered, render: render},
		find:        render(findText),
		look:        render(lookText),
		claim:       render(strings.ReplaceAll(claimText(), "{lock}", "UPDLOCK")),
		claimPast:   render(strings.ReplaceAll(claimText(), "{lock}", "XLOCK")),
		contents:    render(contentsText),
		nextDue:     render(nextDueText),
		rescan:      render(rescanText),
		rescue:      render(rescueText),
		dueOrLocked: render(dueOrLockedText),
		version:     render(versionText),
		record:      render(recordText),
		stats:       render(statsText),
		empty:       render(emptyText),
		get:         render(getText),
		part:        render(partText),
		bodies:      map[bool]string{false: render(bodiesText("{live}", "{pk}")), true: render(bodiesText("{dead}", "{dead pk}"))},
		causes:      render(causesText),
		deaths:      render(deathsText),
		walk:        render(walkText("{dead ended}", "", "")),
		walkGroup:   render(walkText("{dead cause}", "d.cause = @cause AND d.fingerprint = @fingerprint AND ", groupOrder)),
		walkBare:    render(walkText("{dead cause}", "d.cause = @cause AND d.fingerprint IS NULL AND ", groupOrder)),
		cancel:      render(cancelText),
		runNow:      render(runNowText),
		surrender:   render(surrenderText(ordered)),
		discard:     render(discardText),
		queues:      render(queuesText),
		lock:        render(lockText),
		drop:        render(dropText),
		redrive:     render(redriveText),
		redriveIDs:  render(redriveIDsText),
		configure:   render(configureText),
		pause:       render(pauseText),
		resume:      render(resumeText),
		trim:        map[sqlbatch.State]string{},
		problems:    render(problemsText),
		missing:     render(missingText(ordered)),
		clock:       render(clockText),
		join:        render(joinText),
		leave:       render(leaveText),
		consumers:   render(consumersText),
		sample:      render(sampleText()),
		samples:     render(samplesText),
		counted:     render(countedText),
		thin:        render(thinText()),
		peek:        map[sqlbatch.State]string{},
		browse:      map[sqlbatch.State]string{},
		purge:       map[sqlbatch.State]string{},
	}
	q.settles(render)
	for state, template := range peekTexts {
		q.peek[state] = render(template)
	}
	for state, template := range browseTexts(ordered) {
		q.browse[state] = render(template)
	}
	for state, template := range trimTexts {
		q.trim[state] = render(template)
	}
	for state, template := range purgeTexts {
		q.purge[state] = render(template)
	}
	if ordered {
		q.renderOrdered(render)
	}
	return q
}

// renderOrdered renders the texts that only ordered queues have, or that differ there.
func (q *queue) renderOrdered(render func(template string) string) {
	q.readers = newReaders(render)
	counted := func(template string) string {
		return render(strings.Replace(template, "~COMMIT TRANSACTION;\n", countRedrive+"~COMMIT TRANSACTION;\n", 1))
	}
	q.redrive, q.redriveIDs = counted(redriveText), counted(redriveIDsText)
	q.slots, q.takeSlots, q.giveSlots = render(slotsText), render(takeSlotsText), render(giveSlotsText)
	q.slotStats, q.reach = render(slotStatsText), render(reachText)
	q.stats, q.drop = render(orderedStatsText), render(dropOrderedText)
	for state, condition := range seqStates {
		q.purge[state] = render(purgeSeqText(condition.rows, condition.before))
	}
}

func (q *queue) InTx() sqlbatch.Queue { return q.tx() }

func (q *queue) InOwnTx() sqlbatch.Queue    { return q.own() }
func (q *queue) SkipLocked() sqlbatch.Queue { return q.skip() }

// call is one round trip: an RPC of sp_executesql. A text without parameters has no declaration.
func call(text, declaration string, args ...any) sqlbatch.Statement {
	if len(args) == 0 {
		return sqlbatch.Statement{Text: "sp_executesql", Args: []any{text}}
	}
	return sqlbatch.Statement{Text: "sp_executesql", Args: append([]any{text, declaration}, args...)}
}

// Templates
//
// A line of a template that begins with a tilde belongs to a statement that runs in its own transaction. In a transaction of the
// caller it is left out, because XACT_ABORT, the isolation level and the commit belong to the caller. Names are in braces, and so
// are the hints of a settle that skips locked rows.

// session begins every template. XACT_ABORT: an attention (a context that ended) or an error leaves no transaction open. READ
// COMMITTED: the level leaks through connection pools, since sp_reset_connection does not reset it, and READPAST under a leaked
// SNAPSHOT or SERIALIZABLE is error 650. IMPLICIT_TRANSACTIONS: if a connector sets it ON, chanq would report statements as done
// that are never committed. ROWCOUNT: a limit of the session would cut the lists, also in a transaction of the caller. TEXTSIZE: a
// limit of the session would cut bodies and headers, without an error. The server restores all of them when sp_executesql ends.
const session = `~SET NOCOUNT, XACT_ABORT ON;
~SET IMPLICIT_TRANSACTIONS OFF;
~SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
`

// settling is session for statements that change rows. READPAST leaves out rows that others have locked for a change, but a U lock
// is granted while a reader has an S lock, and the X lock of the change is not. Most readers hold it for a moment. At REPEATABLE READ
// or SERIALIZABLE, which is the default of TransactionScope, they hold it until their transaction ends. The statement can also wait for
// an index entry, a range into which it inserts, or a change of the schema. LOCK_TIMEOUT bounds each wait by LockWait: error 1222, of
// class RolledBack. The server restores the setting as well when sp_executesql ends.
const settling = session + `~SET LOCK_TIMEOUT {wait};
`

// skipping makes settles skip the rows that other transactions have locked. UPDLOCK and XLOCK make READPAST work if
// READ_COMMITTED_SNAPSHOT is on. XLOCK also skips rows that readers have locked. It is for the repetition after error 1222: otherwise a
// settle would leave out a row because a claim reads it at that moment.
func skipping(template, lock string) string {
	joins := ""
	if lock == "XLOCK" {
		joins = "{entry joins}"
	}
	return strings.NewReplacer("{past}", lock+", READPAST, ", "{hold}", lock+", READPAST, ", "{entries}", joins).Replace(template)
}

// waiting makes them wait until the caller's context ends.
func waiting(template string) string {
	return strings.NewReplacer("{past}", "", "{hold}", "UPDLOCK, ", "{entries}", "").Replace(template)
}

// alone returns a template as a statement with its own transaction.
func alone(template string) string {
	var b strings.Builder
	b.Grow(len(template))
	for line := range strings.Lines(template) {
		b.WriteString(strings.TrimPrefix(line, "~"))
	}
	return b.String()
}

// within returns a template as a part of the caller's transaction.
func within(template string) string {
	var b strings.Builder
	b.Grow(len(template))
	for line := range strings.Lines(template) {
		if !strings.HasPrefix(line, "~") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// names replaces the names in braces of templates by the quoted names of one queue.
func names(n sqlbatch.Names) build.Words {
	schema := n.Schema
	if schema == "" {
		schema = "dbo"
	}
	bracket := func(name string) string { return build.Quote("[", name, "]") }
	object := func(name string) string { return bracket(schema) + "." + bracket(name) }
	live, queues, consumers, slots, samples := "chanq_"+n.Queue, "chanq__queues", "chanq__consumers", "chanq__slots", "chanq__samples"
	dead, done := live+"__dead", live+"__done"
	return build.NewWords(append(policy.Words(n),
		"{live}", object(live), "{'live'}", unicodeString(object(live)),
		"{dead}", object(dead), "{'dead'}", unicodeString(object(dead)),
		"{done}", object(done), "{'done'}", unicodeString(object(done)),
		"{queues}", object(queues), "{'queues'}", unicodeString(object(queues)),
		"{consumers}", object(consumers), "{'consumers'}", unicodeString(object(consumers)),
		"{samples}", object(samples), "{'samples'}", unicodeString(object(samples)), "{'log'}", unicodeString(object("chanq__log")), "{samples pk}", bracket("PK_"+samples),
		"{slots}", object(slots), "{'slots'}", unicodeString(object(slots)), "{slots pk}", bracket("PK_"+slots),
		"{messages}", object(live+"__messages"), "{send}", object(live+"__send"), "{utf8}", object("chanq__utf8"), "{new id}", newID,
		"{numbers}", object(live+"__seq"), "{'numbers'}", unicodeString(object(live+"__seq")),
		"{gate}", lockName("chanq senders of ", schema, n.Queue),
		"{df min version}", bracket("DF_"+queues+"__min_version"), "{df features}", bracket("DF_"+queues+"__features"),
		"{shard values}", build.ShardValues(n), "{kind and slots}", build.KindAndSlots(n),
		"{df slot}", bracket("DF_"+live+"__slot"), "{df seq}", bracket("DF_"+live+"__seq"),
		"{dead line}", bracket("IX_"+dead+"_key"), "{'dead line'}", unicodeString("IX_"+dead+"_key"),
		"{name}", build.Quote("'", n.Queue, "'"),
		"{'schema'}", unicodeString(schema), "{'[schema]'}", unicodeString(bracket(schema)),
		"{first listener}", lockName("chanq listener 1 of ", schema, n.Queue), "{second listener}", lockName("chanq listener 2 of ", schema, n.Queue),
		"{'no schema'}", unicodeString("chanq: the schema "+bracket(schema)+" is missing or hidden from this login: create it first, chanq does not"),
		"{pk}", bracket("PK_"+live), "{key}", bracket("UX_"+live+"__dedup"), "{'key'}", unicodeString("UX_"+live+"__dedup"),
		"{by seq}", bracket("IX_"+live+"__seq"), "{'by seq'}", unicodeString("IX_"+live+"__seq"), "{df redriven}", bracket("DF_"+queues+"__redriven"),
		"{due}", bracket("IX_"+live+"__due"), "{'due'}", unicodeString("IX_"+live+"__due"),
		"{df id}", bracket("DF_"+live+"__id"), "{df priority}", bracket("DF_"+live+"__priority"),
		"{df due_at}", bracket("DF_"+live+"__due_at"), "{df lease_until}", bracket("DF_"+live+"__lease_until"),
		"{df enqueued_at}", bracket("DF_"+live+"__enqueued_at"),
		"{df noticed_at}", bracket("DF_"+dead+"_noticed_at"),
		"{df fence}", bracket("DF_"+live+"__fence"), "{df attempts}", bracket("DF_"+live+"__attempts"),
		"{df lapses}", bracket("DF_"+live+"__lapses"), "{ck priority}", bracket("CK_"+live+"__priority"),
		"{ck values}", bracket("CK_"+live+"__values"), "{ck sizes}", bracket("CK_"+live+"__sizes"), "{ck order}", bracket("CK_"+live+"__order"),
		"{last fence}", "0x"+strconv.FormatInt(sqlbatch.LastFence, 16), "{high fence}", "0x"+strconv.FormatInt(sqlbatch.HighFence, 16),
		"{expired}", sqlbatch.TextExpired, "{most name}", strconv.Itoa(sqlbatch.MostName), "{most text}", strconv.Itoa(sqlbatch.MostText), "{most history}", strconv.Itoa(sqlbatch.MostHistory),
		"{last attempt}", strconv.Itoa(sqlbatch.LastAttempt), "{version}", strconv.Itoa(sqlbatch.Version), "{least}", strconv.Itoa(sqlbatch.Least), "{kept lapses}", strconv.Itoa(sqlbatch.KeptLapses), "{rescued}", strconv.Itoa(sqlbatch.RescueRows), "{passed}", strconv.Itoa(sqlbatch.PassedRows), "{scatter of q.lapses}", build.Scatter("q.lapses"), "{last lapse}", strconv.Itoa(sqlbatch.LastLapse), "{most body}", strconv.Itoa(sqlbatch.MaxBody), "{most headers}", strconv.Itoa(sqlbatch.MaxHeaders),
		"{dead pk}", bracket("PK_"+dead), "{dead ended}", bracket("IX_"+dead+"_ended"), "{dead key}", bracket("IX_"+dead+"_dedup"),
		"{dead new}", bracket("IX_"+dead+"_new"), "{'dead new'}", unicodeString("IX_"+dead+"_new"),
		"{dead cause}", bracket("IX_"+dead+"_cause"), "{'dead cause'}", unicodeString("IX_"+dead+"_cause"), "{acked}", strconv.Itoa(sqlbatch.OutcomeAcked),
		"{'dead ended'}", unicodeString("IX_"+dead+"_ended"), "{'dead key'}", unicodeString("IX_"+dead+"_dedup"),
		"{no fingerprint}", "CONVERT(bigint, 0x8000000000000000)", "{done pk}", bracket("PK_"+done), "{done id}", bracket("IX_"+done+"_id"), "{'done id'}", unicodeString("IX_"+done+"_id"),
		"{queues pk}", bracket("PK_"+queues), "{consumers pk}", bracket("PK_"+consumers),
		"{wait}", strconv.FormatInt(sqlbatch.LockWait.Milliseconds(), 10),
		"{margin}", strconv.FormatInt(sqlbatch.HeadMargin.Milliseconds(), 10),
	)...)
}

// lockName is an expression for the name of an application lock of a queue. The server compares names of locks byte by byte, and
// names of schemas by the collation of the database, so that [dbo] and [DBO] might be one schema. CHECKSUM is equal for names that
// are equal by that collation. Two schemas with the same checksum share a lock, which costs only waits.
//
// OBJECT_ID does not work in the procedure that other programs call: it is NULL for a login with permission to execute the procedure
// but none on the table.
func lockName(purpose, schema, queue string) string {
	return unicodeString(purpose) + " + CONVERT(nvarchar(11), CHECKSUM(" + unicodeString(schema) + ")) + " + unicodeString("."+queue)
}

func unicodeString(s string) string { return "N" + build.Quote("'", s, "'") }
