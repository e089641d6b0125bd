# SPDX-License-Identifier: Apache-2.0
# Every target is one line in `make help`; the work is done by rebar3 and by scripts/.

.DEFAULT_GOAL := help
.PHONY: help deps compile run test check bench sanitize clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1|/p' $(MAKEFILE_LIST) | \
	    awk -F'|' '{ printf "  make %-10s %s\n", $$1, $$2 }'

deps: ## install the Debian packages of every target below (only what is missing)
	@scripts/deps run test bench sanitize

compile: ## build the apps and the NIF into _build/default
	@scripts/deps run
	rebar3 compile

run: compile ## start the demo: a server, the proxy before it, a short load; Ctrl-C ends it
	bin/erlane demo

test: compile ## run every suite and property; arguments: make test T="erlane_tcp_SUITE"
	@scripts/deps test
	@scripts/run-tests $(T)

check: compile ## compiler warnings, xref, dialyzer, floors, format, sizes, links
	@scripts/deps test
	@scripts/check

bench: compile ## run the http and proxy benchmarks against every installed peer (slow)
	@scripts/deps bench
	bin/erlane bench --list
	bin/erlane bench http
	bin/erlane bench proxy

sanitize: compile ## run the socket suites under ASan, UBSan, TSan, then the fuzz targets
	@scripts/deps test sanitize
	@scripts/sanitize

clean: ## remove everything that was built
	rm -rf _build _san _matrix logs erl_crash.dump rebar3.crashdump
	rm -f apps/*/priv/*.so apps/*/c_src/*.o apps/*/c_src/*.d
	rm -rf bench/peers/bin
