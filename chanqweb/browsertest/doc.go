// Package browsertest tests the web UI in Chromium. It is a separate module, because a program that
// imports chanq should not have the browser's client in its build list.
package browsertest
