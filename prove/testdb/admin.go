package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"unsafe"
	"weak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// opened has the queues that Admin has opened, by a weak pointer to the queue passed to it.
var opened sync.Map

// Admin returns a queue for its operators. For queues of OpenOn it is already open, for others the first call opens it. It panics if
// that fails.
func Admin[T any](q *chanq.Queue[T]) *chanqadmin.Queue {
	a, err := TryAdmin(q)
	if err != nil {
		panic(fmt.Sprintf("testdb.Admin of %s: %v", q.Name(), err))
	}
	return a
}

// TryAdmin is Admin, but returns an error.
func TryAdmin[T any](q *chanq.Queue[T]) (*chanqadmin.Queue, error) {
	key := weak.Make(q)
	if a, ok := opened.Load(key); ok {
		return a.(*chanqadmin.Queue), nil
	}
	core := reflect.ValueOf(q).Elem().FieldByName("core").Elem()
	db := (*sql.DB)(core.FieldByName("db").UnsafePointer())
	cfg := *(*chanq.Config)(unsafe.Pointer(core.FieldByName("cfg").UnsafeAddr()))
	cfg.StatementTimeout = 0 // a test's timeout might be too short for a loaded machine
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	a, err := chanqadmin.Open(ctx, db, q.Name(), cfg)
	if err != nil {
		return nil, err
	}
	opened.Store(key, a)
	runtime.AddCleanup(q, func(key weak.Pointer[chanq.Queue[T]]) { opened.Delete(key) }, key)
	return a, nil
}

// Peek returns up to n messages of a state, with their bodies.
func Peek[T any](ctx context.Context, q *chanq.Queue[T], s chanqadmin.State, n int) ([]chanqadmin.Entry, error) {
	return peek(ctx, Admin(q), s, "", n)
}

// PeekAfter returns up to n messages behind one of the same state, with their bodies.
func PeekAfter[T any](ctx context.Context, q *chanq.Queue[T], last chanqadmin.Entry, n int) ([]chanqadmin.Entry, error) {
	return peek(ctx, Admin(q), last.State, Admin(q).After(last), n)
}

// peek continues with further pages while there are any: a page can have fewer messages than requested.
func peek(ctx context.Context, q *chanqadmin.Queue, s chanqadmin.State, after chanqadmin.PageToken, n int) (list []chanqadmin.Entry, err error) {
	for {
		page, err := q.List(ctx, chanqadmin.Select{State: s}, chanqadmin.List{After: after, Limit: n - len(list), Bodies: true})
		if list = append(list, page.Entries...); err != nil || page.Next == "" || len(list) >= n {
			return list, err
		}
		after = page.Next
	}
}

// Redrive makes up to limit dead messages ready again, 0: all.
func Redrive[T any](ctx context.Context, q *chanq.Queue[T], limit int) (int, error) {
	done, err := Admin(q).Redrive(ctx, chanqadmin.Select{All: true}, chanqadmin.Change{Limit: limit})
	return done.Messages, err
}

// RedriveIDs makes dead messages ready again, and returns the IDs of those that it moved.
func RedriveIDs[T any](ctx context.Context, q *chanq.Queue[T], ids ...chanq.ID) ([]chanq.ID, error) {
	done, err := Admin(q).Redrive(ctx, these(ids), chanqadmin.Change{})
	return done.IDs, err
}

// Purge deletes the messages of a state.
func Purge[T any](ctx context.Context, q *chanq.Queue[T], s chanqadmin.State) (int, error) {
	done, err := Admin(q).Purge(ctx, chanqadmin.Select{State: s, All: true}, chanqadmin.Change{})
	return done.Messages, err
}

// PurgeIDs deletes dead messages, and returns the IDs of those that it deleted.
func PurgeIDs[T any](ctx context.Context, q *chanq.Queue[T], ids ...chanq.ID) ([]chanq.ID, error) {
	done, err := Admin(q).Purge(ctx, these(ids), chanqadmin.Change{})
	return done.IDs, err
}

// these selects the dead messages with these IDs, none if there are none.
func these(ids []chanq.ID) chanqadmin.Select {
	return chanqadmin.Select{State: chanqadmin.StateDead, IDs: append([]chanq.ID{}, ids...)}
}

// Pause pauses a queue.
func Pause[T any](ctx context.Context, q *chanq.Queue[T]) error {
	return Admin(q).Pause(ctx, chanqadmin.Change{})
}
