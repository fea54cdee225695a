package lock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chanq/chanq/mssqltest/internal/lock"
)

func must(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}

// A row without other waiters is locked and released.
func BenchmarkFreeGrant(b *testing.B) {
	for _, held := range []int{0, 2000, 100_000} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			m := lock.New(lock.Options{})
			other, o := m.NewOwner(1, 0), m.NewOwner(2, 0)
			for _, r := range rowKeys(held) {
				must(b, other.Lock(b.Context(), r, lock.X, noWait))
			}
			r := key("k")
			b.ReportAllocs()
			for b.Loop() {
				must(b, o.Lock(context.Background(), r, lock.X, noWait))
				o.Unlock(r, lock.X)
			}
		})
	}
}

// The locks of one claim, 1,000 rows on two indexes, and their release; ns/lock is the cost of one lock, taken and
// released.
func BenchmarkClaim(b *testing.B) {
	o := lock.New(lock.Options{}).NewOwner(1, 0)
	rows := rowKeys(1000)
	rows = append(rows, rows...)
	for i := range rows[1000:] {
		rows[1000+i].Index = 2
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, r := range rows {
			must(b, o.Lock(context.Background(), r, lock.U, skip))
			must(b, o.Lock(context.Background(), r, lock.X, forever))
		}
		o.Release()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rows)), "ns/lock")
}

// ns/release is one Release of this many locks; ns/op includes taking them.
func BenchmarkRelease(b *testing.B) {
	for _, n := range []int{1, 2000} {
		b.Run(fmt.Sprintf("locks=%d", n), func(b *testing.B) {
			o := lock.New(lock.Options{}).NewOwner(1, 0)
			rows := rowKeys(n)
			b.ReportAllocs()
			var releasing time.Duration
			for b.Loop() {
				for _, r := range rows {
					must(b, o.Lock(context.Background(), r, lock.X, noWait))
				}
				begin := time.Now()
				o.Release()
				releasing += time.Since(begin)
			}
			b.ReportMetric(float64(releasing.Nanoseconds())/float64(b.N), "ns/release")
		})
	}
}

// READPAST skips a row that another session holds.
func BenchmarkSkip(b *testing.B) {
	m := lock.New(lock.Options{})
	r := key("k")
	must(b, m.NewOwner(1, 0).Lock(b.Context(), r, lock.X, noWait))
	o := m.NewOwner(2, 0)
	b.ReportAllocs()
	for b.Loop() {
		if o.Lock(context.Background(), r, lock.U, skip) != lock.ErrBusy {
			b.Fatal("not busy")
		}
	}
}

// Several sessions take turns at one row: each grant is a hand-over.
func BenchmarkContended(b *testing.B) {
	for _, sessions := range []int{2, 8} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			m := lock.New(lock.Options{})
			r := key("k")
			b.ReportAllocs()
			turns := make(chan struct{})
			done := make(chan error, sessions)
			for s := range sessions {
				go func() {
					o := m.NewOwner(s, 0)
					for range turns {
						if err := o.Lock(context.Background(), r, lock.X, forever); err != nil {
							done <- err
							return
						}
						o.Release()
					}
					done <- nil
				}()
			}
			for b.Loop() {
				turns <- struct{}{}
			}
			close(turns)
			for range sessions {
				must(b, <-done)
			}
		})
	}
}
