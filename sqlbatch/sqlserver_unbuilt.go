package sqlbatch

import "time"

func (q *sqlServerQueue) SkipLocked() Queue                        { panic("unbuilt") }
func (q *sqlServerQueue) Look([][16]byte) Statement                { panic("unbuilt") }
func (q *sqlServerQueue) EndAfter([]Item, time.Duration) Statement { panic("unbuilt") }
func (q *sqlServerQueue) Problems() Statement                      { panic("unbuilt") }
func (q *sqlServerQueue) Clock() Statement                         { panic("unbuilt") }
func (q *sqlServerQueue) Join(Member) Statement                    { panic("unbuilt") }
func (q *sqlServerQueue) Leave([16]byte) Statement                 { panic("unbuilt") }
func (q *sqlServerQueue) Members() Statement                       { panic("unbuilt") }
