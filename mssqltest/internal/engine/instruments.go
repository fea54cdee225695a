package engine

import (
	"context"
	"sort"
	"sync"

	"github.com/chanq/chanq/mssqltest/internal/lock"
)

// Cost counts the work of statements.
type Cost struct {
	Requests     int64 // executions of the text
	RowsReturned int64 // to the client
	KeysRead     int64 // index entries visited, including ghosts
	RowsRead     int64 // of these, the entries of live rows that passed the conditions on the key
	KeysWritten  int64 // entries of nonclustered indexes added, removed or changed
	Locks        int64 // row and key locks taken
}

// QueryStats is a text, the declaration of its parameters, and its total cost.
type QueryStats struct {
	Text        string
	Declaration string
	Cost
}

type queryStats struct {
	mu  sync.Mutex
	all QueryStats
}

func (e *Engine) queryStats(k batchKey) *queryStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.stats[k]
	if p == nil {
		p = &queryStats{all: QueryStats{Text: k.text, Declaration: k.declaration}}
		e.stats[k] = p
	}
	return p
}

func (p *queryStats) add(c Cost) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all.Requests += c.Requests
	p.all.RowsReturned += c.RowsReturned
	p.all.KeysRead += c.KeysRead
	p.all.RowsRead += c.RowsRead
	p.all.KeysWritten += c.KeysWritten
	p.all.Locks += c.Locks
}

// QueryStats lists the distinct pairs of text and declaration that have been run, sorted by text.
func (e *Engine) QueryStats() []QueryStats {
	e.mu.Lock()
	list := make([]*queryStats, 0, len(e.stats))
	for _, p := range e.stats {
		list = append(list, p)
	}
	e.mu.Unlock()
	out := make([]QueryStats, len(list))
	for i, p := range list {
		p.mu.Lock()
		out[i] = p.all
		p.mu.Unlock()
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Text != out[j].Text {
			return out[i].Text < out[j].Text
		}
		return out[i].Declaration < out[j].Declaration
	})
	return out
}

// ResetQueryStats clears the counts, but keeps the parsed texts.
func (e *Engine) ResetQueryStats() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.stats {
		p.mu.Lock()
		p.all.Cost = Cost{}
		p.mu.Unlock()
	}
}

// CleanGhosts does now what the server's cleanup of ghosts does later: see Options.KeepGhosts.
func (e *Engine) CleanGhosts() { e.db.versions.clean() }

// Locks lists the locks that are held or waited for.
func (e *Engine) Locks() []lock.Info { return e.locks.Snapshot() }

// Names returns the table and the index of a resource.
func (e *Engine) Names(r lock.Resource) (table, index string) {
	t := e.db.tableOf(r.Object)
	if t == nil || r.App != "" {
		return "", ""
	}
	if name, ok := t.indexNames.Load(r.Index); ok && r.Key != "" {
		index = name.(string)
	}
	return t.schema + "." + t.name, index
}

// Escalations counts lock escalations since the start.
func (e *Engine) Escalations() int { return e.locks.Escalations() }

// Waiting lists the sessions that are in WAITFOR.
func (e *Engine) Waiting() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []int
	for id := range e.waitfor {
		out = append(out, id)
	}
	sort.Ints(out)
	return out
}

// Statement is the statement and session for which a hook is called.
type Statement struct {
	Session     int
	Text        string // of the batch
	Declaration string
	Line        int
	Kind        string // the node of the parse tree, such as UpdateStatement
}

// Hooks are called by the session's goroutine around each statement that reads or writes tables. An error of Before or
// Applied makes the statement fail with it. Applied is called after the statement has done its work and before an
// autocommit. OutputRow is called before the row n (from 0) of a result is sent.
type Hooks struct {
	Before    func(ctx context.Context, st Statement) error
	Applied   func(ctx context.Context, st Statement) error
	OutputRow func(ctx context.Context, st Statement, n int) error
}

// SetHooks replaces the hooks.
func (e *Engine) SetHooks(h Hooks) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hooks = h
}

func (e *Engine) hooksNow() Hooks {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hooks
}
