package embedded

import (
	"context"
	"time"
)

// TakeWriterLock takes the lock between processes as another process would. ok is false
// if there are no such locks.
func TakeWriterLock(path string) (give func(), ok bool) {
	l := &fileLock{path: path}
	ok = l.lock(context.Background(), time.Minute)
	return func() {
		l.unlock()
		l.close()
	}, ok
}

// Patience is how long a writer waits for the lock between processes.
const Patience = patience
