package main

import "context"

func suite(ctx context.Context, h *hour) error    { return nil }
func programs(ctx context.Context, h *hour) error { return nil }
func load(ctx context.Context, h *hour) error     { return nil }

var underRecord = []string{"suite", "programs", "load"}

func (h *hour) watchDeadlocks(ctx context.Context)       {}
func (h *hour) readDeadlocks(ctx context.Context)        {}
func (s *server) stopDeadlocks(ctx context.Context) error { return nil }
