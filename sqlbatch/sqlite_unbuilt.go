package sqlbatch

import "time"

func (q *sqliteQueue) SkipLocked() Queue                        { panic("unbuilt") }
func (q *sqliteQueue) Look([][16]byte) Statement                { panic("unbuilt") }
func (q *sqliteQueue) EndAfter([]Item, time.Duration) Statement { panic("unbuilt") }
func (q *sqliteQueue) Problems() Statement                      { panic("unbuilt") }
func (q *sqliteQueue) Clock() Statement                         { panic("unbuilt") }
func (q *sqliteQueue) Join(Member) Statement                    { panic("unbuilt") }
func (q *sqliteQueue) Leave([16]byte) Statement                 { panic("unbuilt") }
func (q *sqliteQueue) Members() Statement                       { panic("unbuilt") }
