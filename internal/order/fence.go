package order

import "github.com/chanq/chanq/sqlbatch"

// Fences only rise. A fence above sqlbatch.HighFence was stored by another program. The fences of such a row begin
// again at the fence of its slot.

// DeliveryFence returns the fence of a delivery: the greater one of the stored fence and the fence of the slot.
func DeliveryFence(stored, slot int64) int64 {
	if stored > sqlbatch.HighFence {
		return slot
	}
	return max(stored, slot)
}

// GivenFence returns the stored fence after a nack, a snooze, a release or a dead letter of a delivery.
func GivenFence(stored, delivery int64) int64 { return DeliveryFence(stored, delivery) + 1 }
