package embedded

import (
	"context"
	"time"
)

// TakeTurn takes the turn among processes as another process would. ok is false
// where there are no such locks.
func TakeTurn(path string) (give func(), ok bool) {
	l := &fileLock{path: path}
	ok = l.lock(context.Background(), time.Minute)
	return func() {
		l.unlock()
		l.close()
	}, ok
}

// Patience of a writer for the turn.
const Patience = patience
