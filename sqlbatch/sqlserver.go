package sqlbatch

import (
	"strings"
)

// SQLServer is the dialect of SQL Server 2016 and later and of Azure SQL, for
// the driver github.com/microsoft/go-mssqldb.
//
// Every statement is a call of sp_executesql by name with a declaration string
// of our own. Left to itself the driver declares each []byte and string by its
// length, and each length is a plan of its own. Parameters have names other than
// @p0, @p1 …, which are the driver's for values without a name.
var SQLServer Dialect = sqlServer{}

type sqlServer struct{}

func (sqlServer) Name() string { return "sqlserver" }

func (sqlServer) Traits() Traits {
	return Traits{
		Schema:       "dbo",
		EnqueueRows:  maxRung,
		ClaimRows:    1000, // at most three locks a row and index, under where escalation is tried
		AckItems:     listBytes / itemBytes,
		NackItems:    listBytes / nackBytes,
		ReleaseItems: listBytes / releaseBytes,
		BuryItems:    listBytes / buryBytes,
		FindIDs:      listRecords,
	}
}

// sqlServerQueue is the statements of one queue, every text rendered.
type sqlServerQueue struct {
	enqueue, enqueueNew []string // by rung
	find                string
	claim               [2]string // by Order
	nextDue             string

	ack, archive, nack, release, bury, extend string

	version, record, stats, get, cancel string
	peek, purge                         map[State]string
	redrive, redriveIDs                 string
	pause, resume, trim                 string

	tx *sqlServerQueue // the same for a transaction of the caller; itself there
}

func (sqlServer) Queue(n Names) Queue {
	names := sqlServerNames(n)
	q := renderSQLServer(func(template string) string { return names.Replace(alone(template)) })
	q.tx = renderSQLServer(func(template string) string { return names.Replace(within(template)) })
	q.tx.tx = q.tx
	return q
}

func renderSQLServer(render func(template string) string) *sqlServerQueue {
	q := &sqlServerQueue{
		find:       render(findText),
		nextDue:    render(nextDueText),
		ack:        render(ackText),
		archive:    render(archiveText),
		nack:       render(nackText),
		release:    render(releaseText),
		bury:       render(buryText),
		extend:     render(extendText),
		version:    render(versionText),
		record:     render(recordText),
		stats:      render(statsText),
		get:        render(getText),
		cancel:     render(cancelText),
		redrive:    render(redriveText),
		redriveIDs: render(redriveIDsText),
		pause:      render(pauseText),
		resume:     render(resumeText),
		trim:       render(trimText),
		peek:       map[State]string{},
		purge:      map[State]string{},
	}
	q.claim[FIFO] = render(claimText(claimFIFOLane))
	q.claim[OrderAny] = render(claimText(claimAnyLane))
	for state, template := range peekTexts {
		q.peek[state] = render(template)
	}
	for state, template := range purgeTexts {
		q.purge[state] = render(template)
	}
	for _, r := range ladder() {
		q.enqueue = append(q.enqueue, render(strings.Replace(enqueueText, "{rows}", r.values, 1)))
		q.enqueueNew = append(q.enqueueNew, render(strings.Replace(enqueueNewText, "{rows}", r.values, 1)))
	}
	return q
}

func (q *sqlServerQueue) InTx() Queue { return q.tx }

// call is one round trip: an RPC of sp_executesql. A text without parameters
// has no declaration either.
func call(text, declaration string, args ...any) Statement {
	if len(args) == 0 {
		return Statement{Text: "sp_executesql", Args: []any{text}}
	}
	return Statement{Text: "sp_executesql", Args: append([]any{text, declaration}, args...)}
}

// Templates
//
// A line of a template that begins with a tilde belongs to a statement that
// stands alone; in a transaction of the caller it is left out, because
// XACT_ABORT, the isolation level and the commit are his there. Names stand in
// braces.

// session begins every template. XACT_ABORT: an attention (a context that
// ended) or an error leaves no transaction open. READ COMMITTED: the level
// leaks through connection pools, since sp_reset_connection does not set it
// back, and READPAST under a leaked SNAPSHOT or SERIALIZABLE is error 650. Both
// are undone by the server when sp_executesql ends.
const session = `~SET NOCOUNT, XACT_ABORT ON;
~SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
`

// alone is a template as a statement of its own.
func alone(template string) string {
	var b strings.Builder
	for line := range strings.Lines(template) {
		b.WriteString(strings.TrimPrefix(line, "~"))
	}
	return b.String()
}

// within is a template as a part of the caller's transaction.
func within(template string) string {
	var b strings.Builder
	for line := range strings.Lines(template) {
		if !strings.HasPrefix(line, "~") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// sqlServerNames puts the names of one queue, quoted, where templates have them
// in braces.
func sqlServerNames(n Names) *strings.Replacer {
	schema := n.Schema
	if schema == "" {
		schema = "dbo"
	}
	bracket := func(name string) string { return quoteWith("[", name, "]") }
	object := func(name string) string { return bracket(schema) + "." + bracket(name) }
	live, queues := "chanq_"+n.Queue, "chanq_queues"
	dead, done := live+"_dead", live+"_done"
	return strings.NewReplacer(
		"{live}", object(live), "{'live'}", unicodeString(object(live)),
		"{dead}", object(dead), "{'dead'}", unicodeString(object(dead)),
		"{done}", object(done), "{'done'}", unicodeString(object(done)),
		"{queues}", object(queues), "{'queues'}", unicodeString(object(queues)),
		"{name}", quoteWith("'", n.Queue, "'"),
		"{'schema'}", unicodeString(schema),
		"{'no schema'}", unicodeString("chanq: the schema "+bracket(schema)+" is missing or hidden from this login: create it first, chanq does not"),
		"{pk}", bracket("PK_"+live), "{ready}", bracket("IX_"+live+"_ready"), "{key}", bracket("UX_"+live+"_key"),
		"{'ready'}", unicodeString("IX_"+live+"_ready"), "{'key'}", unicodeString("UX_"+live+"_key"),
		"{enqueued}", bracket("DF_"+live+"_enqueued_at"),
		"{dead pk}", bracket("PK_"+dead), "{dead ended}", bracket("IX_"+dead+"_ended"), "{dead key}", bracket("IX_"+dead+"_key"),
		"{'dead ended'}", unicodeString("IX_"+dead+"_ended"), "{'dead key'}", unicodeString("IX_"+dead+"_key"),
		"{done pk}", bracket("PK_"+done), "{done id}", bracket("IX_"+done+"_id"), "{'done id'}", unicodeString("IX_"+done+"_id"),
		"{queues pk}", bracket("PK_"+queues),
	)
}

func unicodeString(s string) string { return "N" + quoteWith("'", s, "'") }
