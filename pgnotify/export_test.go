package pgnotify

import "time"

// Paced shortens the intervals of a Notifier.
func Paced(b *Notifier, silence, pulse, off time.Duration) *Notifier {
	b.pace.silence, b.pace.pulse, b.pace.off = silence, pulse, off
	return b
}

// Lingering makes the Notifier listen to a released slot for d.
func Lingering(b *Notifier, d time.Duration) *Notifier {
	b.pace.lingers = d
	return b
}

// LastNotifications is how long Close still sends, and SendFor how long a failed notification is repeated.
const (
	LastNotifications = lastNotifications
	SendFor           = sendFor
)

// Slot returns the listener slot that this process holds and listens to, or -1.
func (b *Notifier) Slot(queue string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.plain[queue]; l != nil && l.slot == l.listening {
		return l.slot
	}
	return -1
}

// BaseOf returns the first lock number of a queue. Queues with the same hash share it.
func BaseOf(queue string) int32 { return baseOf(queue) }

// OwnersChannel returns the channel of the owners of a queue's slots.
func OwnersChannel(queue string) string { return channelOf(baseOf(queue), owners) }
