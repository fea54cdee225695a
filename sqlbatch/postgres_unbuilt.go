package sqlbatch

import "time"

func (q *postgresQueue) SkipLocked() Queue                        { panic("unbuilt") }
func (q *postgresQueue) Look([][16]byte) Statement                { panic("unbuilt") }
func (q *postgresQueue) EndAfter([]Item, time.Duration) Statement { panic("unbuilt") }
func (q *postgresQueue) Problems() Statement                      { panic("unbuilt") }
func (q *postgresQueue) Clock() Statement                         { panic("unbuilt") }
func (q *postgresQueue) Join(Member) Statement                    { panic("unbuilt") }
func (q *postgresQueue) Leave([16]byte) Statement                 { panic("unbuilt") }
func (q *postgresQueue) Members() Statement                       { panic("unbuilt") }
