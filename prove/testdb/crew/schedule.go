package crew

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// tick is how often a schedule is checked while nothing else is waited for.
const tick = 10 * time.Millisecond

// act is a function that is called at a time. wait is the time to its next repetition; it is nil if the act happens
// once.
type act struct {
	at   time.Time
	wait func() time.Duration
	do   func() error
}

// After schedules do once.
func (c *Crew) After(d time.Duration, do func() error) {
	c.acts = append(c.acts, act{time.Now().Add(d), nil, do})
}

// Every schedules do after first, and then at intervals of d until Calm. It does nothing if d
// is 0.
func (c *Crew) Every(first, d time.Duration, do func() error) {
	if d > 0 {
		c.acts = append(c.acts, act{time.Now().Add(first), func() time.Duration { return d }, do})
	}
}

// Often is Every at random times: d is the mean interval.
func (c *Crew) Often(d time.Duration, do func() error) {
	if d > 0 {
		wait := func() time.Duration { return Around(c.Random, d) }
		c.acts = append(c.acts, act{time.Now().Add(wait()), wait, do})
	}
}

// Around returns a random time from half of mean to one and a half times mean.
func Around(random *rand.Rand, mean time.Duration) time.Duration {
	return mean/2 + time.Duration(random.Int64N(int64(mean)))
}

// Calm ends all repetitions. Acts that were scheduled once, such as the end of a Freeze, still happen.
func (c *Crew) Calm() {
	c.acts = slices.DeleteFunc(c.acts, func(a act) bool { return a.wait != nil })
}

// Idle reports whether no act is scheduled once.
func (c *Crew) Idle() bool {
	return !slices.ContainsFunc(c.acts, func(a act) bool { return a.wait == nil })
}

// Run follows the schedule until done returns true or an error, a scheduled act fails, a worker
// ends by itself, or ctx ends. It calls done at every interval.
func (c *Crew) Run(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ; ; <-ticker.C {
		select {
		case err := <-c.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		if err := c.actUntil(time.Now()); err != nil {
			return err
		}
		if is, err := done(); is || err != nil {
			return err
		}
	}
}

// actUntil calls all due acts. Acts can schedule others.
func (c *Crew) actUntil(now time.Time) error {
	for i := 0; i < len(c.acts); {
		a := c.acts[i]
		if now.Before(a.at) {
			i++
			continue
		}
		c.acts = slices.Delete(c.acts, i, i+1)
		if a.wait != nil {
			c.acts = append(c.acts, act{now.Add(a.wait()), a.wait, a.do})
		}
		if err := a.do(); err != nil {
			return err
		}
	}
	return nil
}
