package chanq

import "testing"

// BenchmarkHook measures the overhead of calling a hook.
func BenchmarkHook(b *testing.B) {
	n := 0
	hook := func(SentEvent) { n++ }
	b.Run("call=apart", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			call(hook, SentEvent{Queue: "q"})
		}
	})
	b.Run("call=plain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			hook(SentEvent{Queue: "q"})
		}
	})
}
