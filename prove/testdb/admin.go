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

// opened has the queues of Admin, by a weak pointer to the queue that it was given.
var opened sync.Map

// Admin returns a queue for its operators. One of OpenOn is open already, another one is opened by the first call. It panics if that
// fails.
func Admin[T any](q *chanq.Queue[T]) *chanqadmin.Queue {
	a, err := TryAdmin(q)
	if err != nil {
		panic(fmt.Sprintf("testdb.Admin of %s: %v", q.Name(), err))
	}
	return a
}

// TryAdmin is Admin, and returns an error.
func TryAdmin[T any](q *chanq.Queue[T]) (*chanqadmin.Queue, error) {
	key := weak.Make(q)
	if a, ok := opened.Load(key); ok {
		return a.(*chanqadmin.Queue), nil
	}
	core := reflect.ValueOf(q).Elem().FieldByName("core").Elem()
	db := (*sql.DB)(core.FieldByName("db").UnsafePointer())
	cfg := *(*chanq.Config)(unsafe.Pointer(core.FieldByName("cfg").UnsafeAddr()))
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
	page, err := Admin(q).List(ctx, chanqadmin.List{State: s, Limit: n, Bodies: true})
	return page.Entries, err
}

// PeekAfter returns up to n messages behind one of the same state, with their bodies.
func PeekAfter[T any](ctx context.Context, q *chanq.Queue[T], last chanqadmin.Entry, n int) ([]chanqadmin.Entry, error) {
	page, err := Admin(q).List(ctx, chanqadmin.List{State: last.State, After: Admin(q).After(last), Limit: n, Bodies: true})
	return page.Entries, err
}
