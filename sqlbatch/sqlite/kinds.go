package sqlite

import (
	"fmt"
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

func (r renderer) all(templates []string) (texts []string) {
	for _, template := range templates {
		texts = append(texts, r.Replace(template))
	}
	return texts
}

func newRenderer(n sqlbatch.Names) renderer {
	return renderer{ordered: n.Slots > 0, kind: kind(n), names: names(n)}
}

// kind returns the parts that only an ordered queue has, or nothing for a plain one.
func kind(n sqlbatch.Names) build.Words {
	if n.Slots == 0 {
		return build.NewWords(
			"{order}", "", "{q.order}", "", "{walked order}", "", "{live order}", "", "{order checks}", "", "{ended order}", "", "{sent}", "", "{sent columns}", "", "{sent values}", "",
			"{holder of q}", strings.Replace(nameOf, "{id}", "q.leased_by", 1), "{id key}", "PRIMARY KEY", "{row size}", fmt.Sprint(rowSize),
		)
	}
	return build.NewWords(
		"{order}", ", slot, seq, order_key", "{q.order}", ", q.slot, q.seq, q.order_key", "{walked order}", ", order_key",
		"{live order}", fmt.Sprintf(liveOrder, n.Slots), "{ended order}", endedOrder, "{sent}", ", slot, order_key, seq, fence", "{sent columns}", ", slot, order_key, "+numberOf+", "+numberOf, "{sent values}", sentValues,
		"{order checks}", fmt.Sprintf(orderChecks, n.Slots), "{id key}", "UNIQUE", "{row size}", fmt.Sprint(rowSize+orderSize),
		"{slot count}", fmt.Sprint(n.Slots), "{holder of q}", ownerName,
	)
}

// ownerName is the name of the consumer that has delivered a message: most deliveries are not in the row.
const ownerName = `(SELECT m.name FROM {slots} AS s JOIN {consumers} AS m ON m.id = coalesce(q.leased_by, s.consumer) WHERE s.queue = {name} AND s.slot = q.slot)`

// liveOrder has the additional columns of the live table. seq is the rowid, which AUTOINCREMENT never assigns twice,
// even if the table was empty meanwhile: as there is one writer, nothing needs to be drawn. A message that another
// program inserts without a slot has any slot, since the message is not ordered with any other.
const (
	liveOrder = `
  seq         INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  slot        INTEGER NOT NULL DEFAULT (abs(random() %% %d)),
  order_key   TEXT,`
	endedOrder = `
  slot        INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  order_key   TEXT,`
)

// orderChecks refuses rows that no read would find, and a seq after which AUTOINCREMENT would have no number left, or
// none that this check accepts.
const orderChecks = `,
  CHECK (slot >= 0 AND slot < %d),
  CHECK (seq > 0 AND seq < {last seq}),
  CHECK (length(CAST(order_key AS BLOB)) BETWEEN 1 AND {most key})`

// lastSeq is the end of the seqs. It is above every power of two that another program might use, leaves half of all
// numbers up to that one free, and is not a number that a program is likely to use. It must be constant: a limit from a
// column would depend on what that program wrote there.
const lastSeq = 3 << 60

// orderedMigration1 is the rest of the first migration of an ordered queue.
var orderedMigration1 = []string{
	`CREATE TABLE IF NOT EXISTS {slots} (
  queue  TEXT    NOT NULL,
  slot   INTEGER NOT NULL,
  consumer BLOB,
  fence  INTEGER NOT NULL DEFAULT 0,
  old    INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, slot)
) WITHOUT ROWID`,
	`WITH RECURSIVE s(slot) AS (SELECT 0 UNION ALL SELECT slot + 1 FROM s WHERE slot + 1 < {slot count})
INSERT INTO {slots} (queue, slot) SELECT {name}, slot FROM s WHERE true ON CONFLICT DO NOTHING`,
	`CREATE INDEX IF NOT EXISTS {dead_line_ix} ON {dead_unqualified} (slot, order_key) WHERE order_key IS NOT NULL`,
}
