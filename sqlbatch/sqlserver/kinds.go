package sqlserver

import (
	"strconv"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// renderer makes a statement from a template. Words in braces are names, or parts that only one of the two kinds of
// queues has. These parts can contain names in braces.
type renderer struct {
	ordered     bool
	kind, names build.Words
}

func (r renderer) Replace(template string) string { return r.names.Replace(r.kind.Replace(template)) }

func newRenderer(n sqlbatch.Names) renderer {
	return renderer{ordered: n.Slots > 0, kind: kind(n), names: names(n)}
}

// extended never moves an end back: an extension that its client, but not the server, has given up might run after a
// later one, on whose end the holder relies.
const extended = `CASE WHEN q.lease_until > @until THEN q.lease_until ELSE @until END`

// kind returns the parts that only an ordered queue has, or nothing for a plain one.
func kind(n sqlbatch.Names) build.Words {
	if n.Slots == 0 {
		return build.NewWords(
			"{entry joins}", entryJoins, "{holder of q}", holder("q.leased_by"), "{attempt of deleted}", failed("deleted."), "{order}", "", "{d order}", "", "{e order}", "", "{l order}", "", "{q order}", "", "{u order}", "", "{deleted order}", "", "{live order}", "", "{order checks}", "", "{ended order}", "", "{walked order}", "", "{u walked order}", "", "{q walked order}", "",
		)
	}
	columns := func(of string) string { return ", " + of + "slot, " + of + "seq, " + of + "order_key" }
	return build.NewWords(
		"{entry joins}", orderedEntryJoins, "{holder of q}", holderOfDelivery, "{attempt of deleted}", failed("deleted."), "{order}", columns(""), "{walked order}", ", d.order_key", "{u walked order}", ", u.order_key", "{q walked order}", ", q.order_key", "{d order}", columns("d."), "{e order}", columns("e."), "{l order}", columns("l."), "{q order}", columns("q."), "{u order}", columns("u."), "{deleted order}", columns("deleted."),
		"{live order}", strings.Replace(liveOrder, "{slot count}", strconv.Itoa(n.Slots), 1), "{ended order}", endedOrder,
		"{order checks}", strings.Replace(orderChecks, "{slot count}", strconv.Itoa(n.Slots), 1),
		"{slot count}", strconv.Itoa(n.Slots),
	)
}

// entryJoins lock the entries of a row, after the row, so that READPAST also skips rows whose entries a reader has locked: a count of all
// messages at REPEATABLE READ reads only the entries of one index. Those of keys are left out, since few queries read them.
const (
	entryJoins = `INNER JOIN {live} AS e WITH (XLOCK, READPAST, ROWLOCK, INDEX ({due}), FORCESEEK) ON e.priority = q.priority AND e.due_at = q.due_at AND e.id = q.id
`
	orderedEntryJoins = `INNER JOIN {live} AS e WITH (XLOCK, READPAST, ROWLOCK, INDEX ({due}), FORCESEEK) ON e.slot = q.slot AND e.seq = q.seq AND e.id = q.id
INNER JOIN {live} AS f WITH (XLOCK, READPAST, ROWLOCK, INDEX ({by seq}), FORCESEEK) ON f.seq = q.seq AND f.slot = q.slot AND f.id = q.id
`
)

// liveOrder has the additional columns of the live table. A message that another program inserts without a slot has any
// slot, since it is not ordered with any other. Its number is drawn when the row is made, without the application lock
// of enqueueOrderedText: such a send and a later one of another program are ordered only if the first was visible
// before the second began.
const (
	liveOrder = `
        slot smallint NOT NULL CONSTRAINT {df slot} DEFAULT (CONVERT(int, SUBSTRING(CONVERT(binary(16), NEWID()), 1, 2)) % {slot count}),
        seq bigint NOT NULL CONSTRAINT {df seq} DEFAULT (NEXT VALUE FOR {numbers} * 1048576),
        order_key varbinary(200) NULL,`
	endedOrder = `        slot smallint NOT NULL,
        seq bigint NOT NULL,
        order_key varbinary(200) NULL,
`
)

// orderChecks refuses rows that no read would find.
const orderChecks = `,
        CONSTRAINT {ck order} CHECK (slot >= 0 AND slot < {slot count} AND seq > 0 AND seq < CONVERT(bigint, 0x7FFFFFFFFFFFFFFF) AND DATALENGTH(order_key) > 0)`
