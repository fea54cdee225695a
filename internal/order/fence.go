package order

import "github.com/chanq/chanq/sqlbatch"

// Fences grow. Only another program can have stored one above sqlbatch.HighFence: from there they begin again at
// the fence of the slot.

// DeliveryFence is the fence of a delivery.
func DeliveryFence(stored, slot int64) int64 {
	if stored > sqlbatch.HighFence {
		return slot
	}
	return max(stored, slot)
}

// GivenFence is the stored fence of a message that was given back after a delivery.
func GivenFence(stored, delivery int64) int64 { return DeliveryFence(stored, delivery) + 1 }

// MarkedFence is the stored fence of a message that was marked.
func MarkedFence(stored, slot int64) int64 {
	if stored > sqlbatch.HighFence {
		return slot
	}
	return max(stored+1, slot)
}
