package chanq

import (
	"database/sql"
	"sync"

	"github.com/chanq/chanq/sqlbatch"
)

// bellKey names a queue within this process. Producers ring it after a commit;
// consumers listen. Queues opened twice on one *sql.DB share it.
type bellKey struct {
	db            *sql.DB
	schema, queue string
}

var bells struct {
	mu        sync.Mutex
	listeners map[bellKey][]chan struct{}
}

// schemaOf is the schema that a Config means: the default one has two names, "" and
// its own.
func schemaOf(d sqlbatch.Dialect, schema string) string {
	if schema == "" {
		return d.Traits().Schema
	}
	return schema
}

// listen returns a channel that gets a value after each ring since the last
// receive, and a function that ends it.
func (k bellKey) listen() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	bells.mu.Lock()
	defer bells.mu.Unlock()
	if bells.listeners == nil {
		bells.listeners = map[bellKey][]chan struct{}{}
	}
	bells.listeners[k] = append(bells.listeners[k], ch)
	return ch, func() {
		bells.mu.Lock()
		defer bells.mu.Unlock()
		rest := bells.listeners[k]
		for i, c := range rest {
			if c == ch {
				rest = append(rest[:i:i], rest[i+1:]...)
				break
			}
		}
		if len(rest) == 0 {
			delete(bells.listeners, k)
		} else {
			bells.listeners[k] = rest
		}
	}
}

func (k bellKey) ring() {
	bells.mu.Lock()
	defer bells.mu.Unlock()
	for _, ch := range bells.listeners[k] {
		notify(ch)
	}
}

// notify leaves a value in a channel of capacity 1 unless one is there.
func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
