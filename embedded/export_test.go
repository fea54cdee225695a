package embedded

import (
	"context"
	"time"
)

// TakeTurn takes the turn among processes as another process would.
func TakeTurn(path string) (give func()) {
	l := &fileLock{path: path}
	if !l.lock(context.Background(), time.Minute) {
		panic("no turn")
	}
	return func() {
		l.unlock()
		l.close()
	}
}
