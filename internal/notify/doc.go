// Package notify wakes idle consumers. Consumers of this process wait in a hub, by Key. Consumers of other processes
// use a Notifier: a Debouncer notifies of committed messages, and an idle consumer listens with a Subscription. The
// Notifiers of the databases share the text format of slots (slots.go).
//
// There is no goroutine. A Debouncer has a timer while messages wait for a notification; Flush makes it unnecessary.
// Debouncer.mu and hub.mu are held briefly, and not while the Notifier is called. A Subscription is used by one
// goroutine.
//
// The functions of a Notifier are user code: they are called by base.Call. This package does not depend on a database.
package notify
