package chanq

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// BenchmarkLines is what lines do for a message, without a database: claims of a thousand from 64
// slots, each message handed out and acked. An operation is a claim.
func BenchmarkLines(b *testing.B) {
	const slots, rows = 64, 1000
	for _, keys := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			ls := newLines(lineConfig{prefetch: rows, leaseFor: time.Minute})
			owned := make([]ownSlot, slots)
			for slot := range slots {
				ls.open(slot, 1, 0, 0)
				owned[slot] = ownSlot{slot, 1}
			}
			names := make([]string, keys)
			of := make([]int, keys)
			for i := range names {
				names[i] = fmt.Sprint("customer ", i)
				of[i] = sqlbatch.SlotOf(names[i], [16]byte{}, slots)
			}
			seq, ends := int64(0), make([]lineEnd, 0, slots)
			told := make([]lineRow, 0, rows)
			b.ReportAllocs()
			for b.Loop() {
				ls.own(owned)
				p := ls.plan(time.Duration(seq), slotEnd, time.Hour, false)
				told, ends = told[:0], ends[:0]
				leases := make([]lease, rows)
				for i := range leases {
					seq++
					key := int(seq*7919) % keys
					leases[i].owner = nobody{}
					told = append(told, lineRow{slot: of[key], seq: seq, key: lineKey{names[key], true}, lease: &leases[i], message: &leases[i]})
				}
				for slot := range slots {
					ends = append(ends, lineEnd{slot, slotEnd})
				}
				ls.claimed(p, told, ends, 0)
				for {
					l, _ := ls.next()
					if l == nil {
						break
					}
					l.state.Store(leaseSettled)
					ls.moved(l, 0)
				}
			}
		})
	}
}

type nobody struct{}

func (nobody) home() *queue                                                { return nil }
func (nobody) parent() context.Context                                     { return nil }
func (nobody) settle(context.Context, *lease) error                        { return nil }
func (nobody) extend(context.Context, *lease, time.Duration) (bool, error) { return false, nil }
func (nobody) awaits(*lease) bool                                          { return false }
func (nobody) hurry()                                                      {}
func (nobody) ended(*lease)                                                {}
func (nobody) expire(*lease)                                               {}
func (nobody) settled(SettledEvent)                                        {}
func (nobody) broken(error)                                                {}
func (nobody) moved(...*lease)                                             {}
