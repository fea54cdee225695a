// Package postgres builds the SQL of chanq for PostgreSQL.
package postgres

import (
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
	"github.com/chanq/chanq/sqlbatch/internal/seal"
)

// Dialect is the SQL of PostgreSQL 13 and later, for any driver of database/sql; it is tested with
// github.com/jackc/pgx/v5/stdlib.
//
// A batch is sent as array literals, one for each column, and bodies as one bytea that the statement cuts into parts: one text
// for any count of rows, and arguments of types that every driver knows (docs/internals/decisions.md has the figures). No statement
// relies on the state of a session, so a pooler that assigns connections per transaction can be used. Texts are sent as bytes
// in both directions, and the server converts them to its own encoding: a session whose client_encoding is not UTF8 sends and
// receives the same.
//
// Every plan is pinned by the way the statement is written, because the statistics of a table that alternates between empty and
// full are always wrong:
//
//   - now is a value that the planner does not know: it never compares it with a
//     histogram of times that have passed;
//   - a claim can stop early, at a count that it does not know either, so it
//     takes the index that has the requested order rather than sort;
//   - lists are joined by id = ANY (ARRAY[a.id]), which neither a hash nor a
//     merge join can do: what remains is a nested loop with the list outside, in
//     the order it was given, and one probe of the primary key inside.
//
// The clock is statement_timestamp(). now() is the start of the transaction, which for SendTx is the caller's and might be long
// past: a delay would be shortened by the age of the transaction and a message would overtake messages sent meanwhile.
// clock_timestamp() moves while a statement runs, so the planner cannot compare an index with it.
var Dialect sqlbatch.Dialect = dialect{}

type dialect struct{ seal.Seal }

func (dialect) Name() string { return "postgres" }

// maxRows bounds a statement: it holds its locks for some milliseconds. It is the constant LIMIT in the texts of claims and
// purges.
const maxRows = 1000

// Traits: statements are not prepared. pgx caches prepared statements itself, unless it is configured for transaction pooling,
// where a prepared statement is missing in the next transaction.
func (dialect) Traits() sqlbatch.Traits {
	return sqlbatch.Traits{
		Schema:      "public",
		PlacesBegun: true,
		Remedies:    remedies,
		EnqueueRows: maxRows, ClaimRows: maxRows,
		AckItems: maxRows, NackItems: maxRows, DeadLetterItems: maxRows, FindIDs: maxRows,
	}
}

var remedies = map[string]string{
	sqlbatch.ProblemEncoding: "the encoding of a database cannot be changed: make one with ENCODING 'UTF8' TEMPLATE template0",
	sqlbatch.ProblemDurability: "set synchronous_commit to on for this role (ALTER ROLE … SET synchronous_commit = 'on'), this database and this connection; " +
		"ALTER TABLE … SET LOGGED if it is a table",
	sqlbatch.ProblemHidden: "ALTER ROLE … BYPASSRLS, or ALTER TABLE … DISABLE ROW LEVEL SECURITY: chanq must see all rows of its tables",
	sqlbatch.ProblemTable:  "rename it, and run chanq.Migrate",
	sqlbatch.ProblemNode:   "connect to the coordinator, as all other programs of this queue must",
}

// queue has the statements of one queue, every text rendered.
type queue struct {
	seal.Seal
	*texts
	settle      *settles
	inTx, skips *queue
}

// texts are the same inside and outside of transactions.
type texts struct {
	ordered   bool
	slotCount int
	begun     string // enqueue, with the start time of the transaction, and the number that begin drew

	enqueue, enqueueNew, find, look, claim, contents, nextDue, dueOrLocked, rescan, rescue        string
	version, problems, missing, clock, record, stats, empty, get, part, cancel, runNow, surrender string
	discard, queues, lock, wear, vacuum                                                           string
	causes, deaths, walk, walkGroup, walkBare                                                     string
	bodies                                                                                        map[bool]string // true: of dead messages
	drop                                                                                          []string
	keep, replace                                                                                 string // of a plain queue
	redrive, redriveIDs, configure, pause, resume, join, leave, consumers                         string
	trim                                                                                          map[sqlbatch.State]string
	sample, counted, samples, thin                                                                string
	slots, takeSlots, giveSlots, slotStats, begin, reach                                          string // of an ordered queue, as are the next fields
	read, refill, fetch, lookOrdered, heldKeys, markOrdered, releaseOrdered                       string
	peek, browse, purge                                                                           map[sqlbatch.State]string
}

// Watch has no text: see Dialect.Watch.
func (dialect) Watch([]sqlbatch.Watched, time.Duration, time.Duration) sqlbatch.Statement {
	return sqlbatch.Statement{}
}

func (dialect) Queue(n sqlbatch.Names) sqlbatch.Queue {
	r := newRenderer(n)
	texts := &texts{
		ordered:     r.ordered,
		slotCount:   n.Slots,
		enqueue:     r.Replace(enqueueText(r.ordered)),
		begun:       r.Replace(enqueueBegunText(r.ordered)),
		enqueueNew:  r.Replace(enqueueText(r.ordered) + newOnly),
		keep:        r.Replace(overText(keeping)),
		replace:     r.Replace(overText(replacing)),
		find:        r.Replace(findText),
		look:        r.Replace(lookText),
		claim:       r.Replace(claimText),
		contents:    r.Replace(contentsText),
		nextDue:     r.Replace(nextDueText),
		dueOrLocked: r.Replace(nextDueOf(not("q.lease_until > {now}"))),
		rescan:      r.Replace(rescanText),
		rescue:      r.Replace(rescueText),
		version:     r.Replace(versionText),
		problems:    r.Replace(problemsText),
		missing:     r.Replace(missingText(r.ordered)),
		clock:       r.Replace(clockText),
		record:      r.Replace(recordText),
		stats:       r.Replace(statsText),
		empty:       r.Replace(emptyText),
		get:         r.Replace(getText),
		part:        r.Replace(partText),
		cancel:      r.Replace(cancelText),
		runNow:      r.Replace(runNowText),
		surrender:   r.Replace(surrenderText(r.ordered)),
		discard:     r.Replace(discardText),
		bodies:      map[bool]string{false: r.Replace(bodiesText("{live}")), true: r.Replace(bodiesText("{dead}"))},
		causes:      r.Replace(causesText),
		deaths:      r.Replace(deathsText),
		walk:        r.Replace(walkText("", "")),
		walkGroup:   r.Replace(walkText(`q.cause = $5::smallint AND q.fingerprint = $6::bigint AND `, groupOrder)),
		walkBare:    r.Replace(walkText(`q.cause = $5::smallint AND q.fingerprint IS NULL AND `, groupOrder)),
		queues:      r.Replace(queuesText),
		lock:        r.Replace(lockText),
		wear:        r.Replace(wearText),
		vacuum:      r.Replace(vacuumText),
		redrive:     r.Replace(redriveText),
		redriveIDs:  r.Replace(redriveIDsText),
		configure:   r.Replace(configureText),
		pause:       r.Replace(pauseText),
		resume:      r.Replace(resumeText),
		trim:        map[sqlbatch.State]string{sqlbatch.Dead: r.Replace(trimText("{dead}")), sqlbatch.Done: r.Replace(trimText("{done}"))},
		join:        r.Replace(joinText),
		leave:       r.Replace(leaveText),
		consumers:   r.Replace(consumersText),
		sample:      r.Replace(sampleText),
		counted:     r.Replace(countedText),
		samples:     r.Replace(samplesText),
		thin:        r.Replace(thinText()),
		peek:        map[sqlbatch.State]string{},
		browse:      map[sqlbatch.State]string{},
		purge:       map[sqlbatch.State]string{},
	}
	for _, template := range dropTexts(r.ordered) {
		texts.drop = append(texts.drop, r.Replace(template))
	}
	for state, template := range peekTexts() {
		texts.peek[state] = r.Replace(template)
	}
	for state, template := range browseTexts(r.ordered) {
		texts.browse[state] = r.Replace(template)
	}
	for state, template := range purgeTexts() {
		texts.purge[state] = r.Replace(template)
	}
	if r.ordered {
		texts.order(r)
	}
	skips := &queue{texts: texts, settle: newSettles(r, skips)}
	skips.inTx, skips.skips = skips, skips
	inTx := &queue{texts: texts, settle: newSettles(r, waits), skips: skips}
	inTx.inTx = inTx
	return &queue{texts: texts, settle: newSettles(r, waitsShortly), inTx: inTx, skips: skips}
}

// order renders the texts that only ordered queues have, or that differ there.
func (t *texts) order(r renderer) {
	t.slots, t.slotStats = r.Replace(slotsText), r.Replace(slotStatsText)
	t.takeSlots, t.giveSlots = r.Replace(takeSlotsText), r.Replace(giveSlotsText)
	t.begin, t.reach = r.Replace(drawText), r.Replace(reachText)
	t.stats = r.Replace(orderedStatsText)
	t.readers(r)
	t.markOrdered, t.releaseOrdered = r.Replace(markOrderedText), r.Replace(releaseOrderedText)
	for state, is := range seqStates {
		t.purge[state] = r.Replace(purgeSeqText(is.condition + is.before))
	}
}

func (q *queue) InTx() sqlbatch.Queue { return q.inTx }

// InOwnTx returns the same queue: the setting of a settle is local to its transaction, which is chanq's own here.
func (q *queue) InOwnTx() sqlbatch.Queue { return q }

// SkipLocked returns the same queue inside and outside of a transaction.
func (q *queue) SkipLocked() sqlbatch.Queue { return q.skips }

// names replaces the names in braces of templates by the quoted names of one queue. Tables begin with chanq_ and indexes do
// not, since both share the names of a schema.
func names(n sqlbatch.Names) build.Words {
	schema := n.Schema
	if schema == "" {
		schema = "public"
	}
	quote := func(name string) string { return build.Quote(`"`, name, `"`) }
	in := quote(schema) + "."
	live := "chanq_" + n.Queue
	tag := "$chanq$" // quotes a text that contains the schema's name
	for strings.Contains(schema, tag) {
		tag = tag[:len(tag)-1] + "_$"
	}
	literal := func(name string) string { return build.Quote("'", in+quote(name), "'") }
	return build.NewWords(append(policy.Words(n),
		"{queues}", in+quote("chanq__queues"), "{shard values}", build.ShardValues(n), "{kind and slots}", build.KindAndSlots(n), "{queues pk}", quote("pk_chanq__queues"),
		"{consumers}", in+quote("chanq__consumers"), "{consumers pk}", quote("pk_chanq__consumers"), "{consumers queue}", quote("ix_chanq__consumers"), "{'consumers queue'}", literal("ix_chanq__consumers"),
		"{samples}", in+quote("chanq__samples"), "{samples pk}", quote("pk_chanq__samples"),
		"{live}", in+quote(live), "{'live'}", literal(live), "{live pk}", quote("pk_"+live), "{live priority}", quote("ck_"+live+"__priority"),
		"{live values}", quote("ck_"+live+"__values"), "{live sizes}", quote("ck_"+live+"__sizes"), "{live line}", quote("ck_"+live+"__order"),
		"{last fence}", strconv.FormatInt(sqlbatch.LastFence, 10), "{high fence}", strconv.FormatInt(sqlbatch.HighFence, 10),
		"{expired}", sqlbatch.TextExpired, "{most name}", strconv.Itoa(sqlbatch.MostName), "{most text}", strconv.Itoa(sqlbatch.MostText), "{most history}", strconv.Itoa(sqlbatch.MostHistory),
		"{last attempt}", strconv.Itoa(sqlbatch.LastAttempt), "{version}", strconv.Itoa(sqlbatch.Version), "{least}", strconv.Itoa(sqlbatch.Least), "{kept lapses}", strconv.Itoa(sqlbatch.KeptLapses), "{rescued}", strconv.Itoa(sqlbatch.RescueRows), "{passed}", strconv.Itoa(sqlbatch.PassedRows), "{scatter of q.lapses}", build.Scatter("q.lapses"), "{last lapse}", strconv.Itoa(sqlbatch.LastLapse), "{last time}", strconv.FormatInt(sqlbatch.LastTime, 10), "{most body}", strconv.Itoa(sqlbatch.MaxBody),
		"{most headers}", strconv.Itoa(sqlbatch.MaxHeaders), "{most key}", strconv.Itoa(sqlbatch.MaxKey), "{most type}", strconv.Itoa(sqlbatch.MaxType), "{acked}", strconv.Itoa(sqlbatch.OutcomeAcked),
		"{by seq}", quote("ix_"+live+"__seq"), "{'by seq'}", literal("ix_"+live+"__seq"), "{due}", quote("ix_"+live+"__due"), "{'due'}", literal("ix_"+live+"__due"), "{key}", quote("ux_"+live+"__dedup"), "{'key'}", literal("ux_"+live+"__dedup"),
		"{dead}", in+quote(live+"__dead"), "{'dead'}", literal(live+"__dead"), "{'done'}", literal(live+"__done"), "{'queues'}", literal("chanq__queues"), "{'samples'}", literal("chanq__samples"), "{'log'}", literal("chanq__log"), "{'slots'}", literal("chanq__slots"), "{'consumers'}", literal("chanq__consumers"), "{dead pk}", quote("pk_"+live+"__dead"),
		"{dead ended}", quote("ix_"+live+"__dead_ended"), "{'dead ended'}", literal("ix_"+live+"__dead_ended"),
		"{dead cause}", quote("ix_"+live+"__dead_cause"), "{'dead cause'}", literal("ix_"+live+"__dead_cause"),
		"{dead key}", quote("ix_"+live+"__dead_dedup"), "{'dead key'}", literal("ix_"+live+"__dead_dedup"),
		"{dead new}", quote("ix_"+live+"__dead_new"), "{'dead new'}", literal("ix_"+live+"__dead_new"),
		"{done}", in+quote(live+"__done"), "{done pk}", quote("pk_"+live+"__done"),
		"{done ended}", quote("ix_"+live+"__done_ended"), "{'done ended'}", literal("ix_"+live+"__done_ended"),
		"{slots}", in+quote("chanq__slots"), "{slots pk}", quote("pk_chanq__slots"),
		"{numbers}", in+quote(live+"__seq"), "{'numbers'}", literal(live+"__seq"), "{seq bits}", strconv.Itoa(sqlbatch.SeqBits), "{seqs}", strconv.Itoa(1<<sqlbatch.SeqBits),
		"{dead line}", quote("ix_"+live+"__dead_key"), "{'dead line'}", literal("ix_"+live+"__dead_key"),
		"{new id}", newID, "{messages}", in+quote(live+"__messages"), "{send}", in+quote(live+"__send"),
		"{no fingerprint}", "9223372036854775807",
		"{senders}", strconv.Itoa(sendersClass),
		"{$}", tag,
		"{name}", build.Quote("'", n.Queue, "'"),
		"{now}", once(clock), "{clock}", clock,
		"{begun}", once("(extract(epoch FROM transaction_timestamp()) * 1000)::bigint"),
		"{encoding}", "getdatabaseencoding()", // unchanged: in an SQL_ASCII database other programs might have stored any bytes
		"{rows}", strconv.Itoa(maxRows), "{fence bits}", strconv.Itoa(sqlbatch.FenceBits),
		"{margin}", strconv.FormatInt(sqlbatch.HeadMargin.Milliseconds(), 10),
	)...)
}

// clock is the time of the database.
const clock = "(extract(epoch FROM statement_timestamp()) * 1000)::bigint"

// once makes an expression evaluate once, not for each row, and hides it from the planner. Citus looks for a column in an
// expression that it would evaluate before it forwards a statement, and fails at a sub-select without one; the planner merges
// the two selects.
func once(expression string) string {
	return "(SELECT c.v FROM (SELECT " + expression + " AS v) AS c)"
}

// textBytes is convert_to for the unchanged encoding of the database, from functions that are IMMUTABLE: Citus allows no others
// in a RETURNING.
func textBytes(column string) string {
	return "decode(replace(" + column + ", chr(92), repeat(chr(92), 2)), 'escape')"
}
