package pgnotify

import "time"

// Paced is New for a test that does not wait as long as others do.
func Paced(b *Notifier, silence, pulse, off time.Duration) *Notifier {
	b.pace.silence, b.pace.pulse, b.pace.off = silence, pulse, off
	return b
}

// Lingering hears a chair that it gave up for so long.
func Lingering(b *Notifier, d time.Duration) *Notifier {
	b.pace.lingers = d
	return b
}

// Chair is the one that this process has taken and hears, -1 for none.
func (b *Notifier) Chair(queue string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lines[queue]; l != nil && l.chair == l.listening {
		return l.chair
	}
	return -1
}

// BaseOf is what two queues of the same hash have in common.
func BaseOf(queue string) int32 { return baseOf(queue) }

// OwnersChannel is the channel of the owners of a queue's slots.
func OwnersChannel(queue string) string { return channelOf(baseOf(queue), owners) }
