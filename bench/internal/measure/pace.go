package measure

import (
	"context"
	"time"
)

// AtRate calls send n times, or until ctx ends, at a rate per second. Call i is due at its own
// time, independent of earlier calls: a delayed sender does not hide its delay by sending less.
func AtRate(ctx context.Context, rate float64, n int, send func(i int, due time.Time) error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	start := time.Now()
	for i := range n {
		due := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := send(i, due); err != nil {
			return err
		}
	}
	return nil
}
