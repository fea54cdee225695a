package postgres

import (
	"strconv"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// renderer makes a statement from a template. Words in braces are names, or parts that only one of the two kinds of queues
// has. These parts can contain names in braces.
type renderer struct {
	ordered     bool
	kind, names build.Words
}

func (r renderer) Replace(template string) string { return r.names.Replace(r.kind.Replace(template)) }

func newRenderer(n sqlbatch.Names) renderer {
	return renderer{ordered: n.Slots > 0, kind: kind(n), names: names(n)}
}

// kind returns the parts that only an ordered queue has, or nothing for a plain one.
func kind(n sqlbatch.Names) build.Words {
	if n.Slots == 0 {
		return build.NewWords(
			"{order}", "", "{q.order}", "", "{d.order}", "", "{order checks}", "", "{replace order}", "", "{live seq}", "", "{live slot}", "", "{live key}", "", "{ended order}", "", "{shown order}", "",
			"{count redrive}", "", "{walked order}", "", "{holder of q}", strings.Replace(nameOf, "{id}", "q.leased_by", 1),
		)
	}
	slots := strconv.Itoa(n.Slots)
	return build.NewWords(
		"{order}", ", slot, seq, order_key", "{q.order}", ", q.slot, q.seq, q.order_key", "{d.order}", ", d.slot, d.seq, d.order_key",
		"{replace order}", ",\n  slot = excluded.slot, seq = excluded.seq, order_key = excluded.order_key",
		"{live seq}", liveSeq, "{live slot}", strings.ReplaceAll(liveSlot, "{slot count}", slots), "{live key}", liveKey, "{ended order}", endedOrder,
		"{order checks}", strings.ReplaceAll(orderChecks, "{slot count}", slots),
		"{shown order}", ", q.slot, q.seq, convert_to(q.order_key, {encoding}) AS order_key",
		"{slot count}", slots, "{count redrive}", countRedrive, "{holder of q}", ownerName,
		"{walked order}", ", convert_to(q.order_key, {encoding}) AS order_key",
	)
}

// ownerName is the name of the consumer that has delivered a message: most deliveries are not in the row.
const ownerName = `(SELECT m.name FROM {slots} AS s JOIN {consumers} AS m ON m.id = coalesce(q.leased_by, s.consumer) WHERE s.queue = {name} AND s.slot = q.slot)`

// liveSeq, liveSlot and liveKey are the columns of an order in the live table, each placed by its width. endedOrder has the
// columns of the other tables.
//
// The seq of an INSERT by another program is drawn as in enqueueText. That program does not know the slot of its message, so
// it is any slot, since the message is not ordered with any other. It is a product, not a shift: for the large numbers that
// a node of Citus other than the coordinator draws, this is an error.
const (
	liveSeq = `
  seq         bigint   NOT NULL DEFAULT CASE WHEN ` + sending + ` IS NOT NULL THEN nextval({'numbers'}::regclass) * {seqs} END,`
	liveSlot = `
  slot        smallint NOT NULL DEFAULT floor(random() * {slot count})::smallint,`
	liveKey = `
  order_key   text COLLATE "C",`
	endedOrder = `
  slot        smallint NOT NULL,
  seq         bigint   NOT NULL,
  order_key   text COLLATE "C",`
)

// orderChecks refuses rows that no read would find.
const orderChecks = `,
  CONSTRAINT {live line} CHECK (slot >= 0 AND slot < {slot count} AND seq > 0 AND seq < 9223372036854775807 AND octet_length(order_key) BETWEEN 1 AND {most key})`

// sendersClass is the class of the advisory locks that senders share: chno.
const sendersClass = 'c'<<24 | 'h'<<16 | 'n'<<8 | 'o'

// countRedrive increments the number of redrives of the queue in the transaction of a redrive that moves a message.
const countRedrive = `,
counted AS (
  UPDATE {queues} SET redriven = redriven + 1 WHERE name = {name} AND EXISTS (SELECT 1 FROM moved)
)`
