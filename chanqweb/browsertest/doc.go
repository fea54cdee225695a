// Package browsertest tests the web UI in Chromium. It is a module of its own, because a program that
// imports chanq should not have the browser's client in its build list.
package browsertest
