%% SPDX-License-Identifier: Apache-2.0
%% The live page in a real browser: Chromium, headless. Each case has a page and a profile of its
%% own, and ends with nothing in the browser's console.
%%
%% With ERLANE_SCREENSHOTS set to a directory the case `screenshots' leaves its pictures there;
%% those in docs/images are made so.
-module(real_page_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([values_move_under_traffic/1, nothing_is_wider_than_the_page/1,
         keyboard_reaches_every_control/1, keyboard_reads_a_chart/1, schemes_and_themes/1,
         pause_keeps_what_is_shown/1, family_is_found_and_charted/1, names_are_only_text/1,
         breaks_and_comes_back/1, token_by_link_and_by_form/1,
         memory_does_not_grow_with_samples/1, screenshots/1]).

-define(TOKEN, <<"a-token-for-the-tests-0123456789">>).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [values_move_under_traffic, nothing_is_wider_than_the_page, keyboard_reaches_every_control,
     keyboard_reads_a_chart, schemes_and_themes, pause_keeps_what_is_shown,
     family_is_found_and_charted, names_are_only_text, breaks_and_comes_back,
     token_by_link_and_by_form, memory_does_not_grow_with_samples, screenshots].

init_per_suite(Config) ->
    Dir = lists:concat(["/tmp/erlane_page.", os:getpid()]),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    %% In a process that lives as long as the suite.
    Self = self(),
    Owner = spawn(fun() ->
                          Answer = real_chromium:start(filename:join(Dir, "profile")),
                          Self ! {self(), Answer},
                          receive stop -> ok end,
                          [real_chromium:stop(Browser) || {ok, Browser} <- [Answer]],
                          Self ! {self(), stopped}
                  end),
    receive
        {Owner, {skip, Why}} -> {skip, Why};
        {Owner, {ok, Browser}} ->
            {ok, _} = application:ensure_all_started(erlane_socket),
            [{browser, Browser}, {owner, Owner}, {dir, Dir} | Config]
    end.

end_per_suite(Config) ->
    Owner = proplists:get_value(owner, Config),
    Owner ! stop,
    receive {Owner, stopped} -> ok after 10000 -> ok end,
    _ = file:del_dir_r(proplists:get_value(dir, Config)),
    application:stop(erlane_socket).

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(erlane_dash),
    Config.

end_per_testcase(_Case, _Config) ->
    ok = application:stop(erlane_dash),
    ok = application:stop(erlane_http).

%% The page of a node that samples often, so that a case need not wait for seconds.
dash(Options) ->
    {ok, #{url := Url}} = erlane_dash:start(maps:merge(#{lanes => {erlane_socket, stats},
                                                         interval => 200}, Options)),
    Url.

page(Config, Url) -> page(Config, Url, #{}).

page(Config, Url, Options) ->
    real_chromium:open(proplists:get_value(browser, Config), Options#{url => Url}).

%% With a first sample, after which what there is nothing of is hidden.
live(Page) ->
    real_chromium:until(Page, "document.body.dataset.state === 'live' && "
                              "document.querySelector('#facts').textContent.includes(' up ')").

%% The last thing of a page: nobody complained.
quiet(Page) ->
    ?assertEqual([], real_chromium:faults(Page)),
    real_chromium:close(Page).

%%% cases

%% Every panel has figures, and those of the lanes and of the proxy follow the traffic.
values_move_under_traffic(Config) ->
    Moved = counters:new(1, []),
    Proxies = fun() ->
                      N = counters:get(Moved, 1),
                      [#{name => web, state => listening, listen => {{127, 0, 0, 1}, 8080},
                         to => {{127, 0, 0, 1}, 8081}, connections => 7, accepted => N,
                         to_upstream => N * 10, to_client => N * 100}]
              end,
    Page = page(Config, dash(#{proxies => Proxies})),
    live(Page),
    Lane = "[...document.querySelectorAll('#lane-table tbody tr')]"
           ".map(r => r.cells[1].textContent).join()",
    real_chromium:until(Page, "document.querySelectorAll('#lane-table tbody tr').length > 0"),
    Idle = real_chromium:eval(Page, Lane),
    Stop = traffic(Moved),
    try
        %% Sockets that carry something wake their lanes.
        real_chromium:until(Page, [Lane, " !== '", Idle, "'"]),
        real_chromium:until(Page, "/[1-9]/.test(document.querySelector("
                                  "'#proxy-table tbody tr').cells[6].textContent)"),
        real_chromium:until(Page, "parseInt(document.querySelector("
                                  "'#lanes-sum').textContent.split(', ')[1]) >= 2")
    after
        Stop()
    end,
    [?assertEqual({Id, true},
                  {Id, real_chromium:eval(Page, ["document.querySelectorAll('#", Id,
                                                 " tbody tr').length > 0"])})
     || Id <- ["lane-table", "sched-table", "mem-table", "limits-table", "work-table",
               "proxy-table", "proc-table"]],
    %% The charts have been drawn: pixels that are not empty.
    real_chromium:eval(Page, "document.querySelector('#mem-chart').scrollIntoView()"),
    real_chromium:until(Page, ["(", painted("#mem-chart canvas"), ") > 500"]),
    ?assert(real_chromium:eval(Page, painted("#lane-charts canvas")) > 100),
    quiet(Page).

%% How many pixels of a canvas are not empty; of a copy, because reading is slow.
painted(Selector) ->
    ["(() => { const c = document.querySelector('", Selector, "'); if (c.width === 0) return 0; "
     "const k = document.createElement('canvas'); k.width = c.width; k.height = c.height; "
     "const g = k.getContext('2d', { willReadFrequently: true }); g.drawImage(c, 0, 0); "
     "const d = g.getImageData(0, 0, k.width, k.height).data; let n = 0; "
     "for (let i = 3; i < d.length; i += 4) if (d[i] > 0) n += 1; return n; })()"].

%% Two sockets of the lanes that play ball.
traffic(Counter) ->
    Self = self(),
    Pid = spawn_link(fun() ->
                             Lane = [{inet_backend, inet}, {tcp_module, erlane_tcp}],
                             Opts = [binary, {active, false}, {ip, {127, 0, 0, 1}}],
                             {ok, L} = gen_tcp:listen(0, Lane ++ Opts),
                             {ok, Port} = inet:port(L),
                             {ok, A} = gen_tcp:connect({127, 0, 0, 1}, Port,
                                                       Lane ++ [binary, {active, false}]),
                             {ok, B} = gen_tcp:accept(L),
                             Self ! {self(), on},
                             ball(A, B, Counter)
                     end),
    receive {Pid, on} -> ok end,
    fun() -> unlink(Pid), exit(Pid, kill) end.

ball(A, B, Counter) ->
    ok = gen_tcp:send(A, <<0:8000>>),
    {ok, _} = gen_tcp:recv(B, 1000),
    counters:add(Counter, 1, 1),
    %% Some rest between, or the browser has no processor left; more of it now and then.
    Rest = 6 + round(5 * math:sin(erlang:monotonic_time(millisecond) / 6000)),
    receive after Rest -> ball(B, A, Counter) end.

nothing_is_wider_than_the_page(Config) ->
    Long = list_to_atom(lists:duplicate(200, $x)),
    Url = dash(#{proxies => fun() -> [#{name => Long, state => listening, connections => 1,
                                        listen => {{127, 0, 0, 1}, 1}, to => {"host", 2}}] end}),
    _ = erlane_metrics:handle(erlane_metrics:counter(#{name => binary:copy(<<"long_">>, 40),
                                                       help => binary:copy(<<"help">>, 80),
                                                       labels => [<<"label">>]}),
                              [binary:copy(<<"value">>, 50)]),
    [begin
         Page = page(Config, [Url, "#family=", binary:copy(<<"long_">>, 40)],
                     #{size => {Width, 844}}),
         live(Page),
         real_chromium:until(Page, "document.querySelectorAll('#fam-table tbody tr').length > 0"),
         real_chromium:until(Page, "document.querySelectorAll('#proxy-table tbody tr').length"),
         ?assertEqual({Width, Width},
                      {Width, real_chromium:eval(Page, "document.documentElement.scrollWidth")}),
         quiet(Page)
     end || Width <- [390, 768, 1280, 1920]].

%% From the top with the tab key alone, each with something to be seen of the focus.
keyboard_reaches_every_control(Config) ->
    Page = page(Config, dash(#{})),
    live(Page),
    real_chromium:until(Page, "document.querySelectorAll('#fam-list li').length > 0"),
    Reached = tabs(Page, 60, []),
    [?assert(lists:member(Id, Reached), {Id, Reached})
     || Id <- [<<"window">>, <<"pause">>, <<"theme">>, <<"lane-measure">>, <<"runq-chart">>,
               <<"mem-chart">>, <<"work-chart">>, <<"fam-search">>, <<"fam-list">>,
               <<"sort:Memory">>, <<"sort:Mailbox">>, <<"sort:Reductions/s">>, <<"skip">>,
               <<"link:#lanes">>, <<"link:metrics">>]],
    %% Everything that has a place in the order was met.
    All = real_chromium:eval(Page, ["[...document.querySelectorAll('a[href], button, select, "
                                    "input, [tabindex=\"0\"]')].filter(e => e.offsetParent && "
                                    "!(e.type === 'radio' && !e.checked)).map(", name(), ")"]),
    ?assertEqual([], All -- Reached),
    quiet(Page).

tabs(_, 0, Acc) -> Acc;
tabs(Page, N, Acc) ->
    real_chromium:key(Page, <<"Tab">>),
    case real_chromium:eval(Page, ["(() => { const e = document.activeElement; "
                                   "if (e === document.body) return null; "
                                   "const s = getComputedStyle(e); const t = e.type === 'radio' ? "
                                   "getComputedStyle(e.nextElementSibling) : s; "
                                   "return [(", name(), ")(e), t.outlineStyle !== 'none' && "
                                   "parseFloat(t.outlineWidth) >= 2]; })()"]) of
        null -> Acc;
        [Name, Outlined] ->
            ?assertEqual({Name, true}, {Name, Outlined}),
            tabs(Page, N - 1, [Name | Acc])
    end.

name() ->
    "(e => e.type === 'radio' ? 'window' : e.className === 'skip' ? 'skip' : "
    "e.closest('thead') ? 'sort:' + e.textContent : e.id || (e.href ? 'link:' + "
    "e.getAttribute('href') : e.outerHTML))".

keyboard_reads_a_chart(Config) ->
    Page = page(Config, dash(#{})),
    live(Page),
    real_chromium:until(Page, "document.querySelectorAll('#mem-table tbody tr').length > 0"),
    real_chromium:eval(Page, "document.querySelector('#mem-chart').focus()"),
    Said = "document.querySelector('#mem-chart [aria-live]').textContent",
    real_chromium:key(Page, <<"ArrowLeft">>),
    ?assertMatch({match, _}, re:run(real_chromium:eval(Page, Said),
                                    "[0-9:]+.*processes [0-9.]+.*iB")),
    real_chromium:key(Page, <<"Escape">>),
    ?assertEqual(<<>>, real_chromium:eval(Page, Said)),
    %% A press of p pauses, without any focus on the button.
    real_chromium:press(Page, <<"p">>),
    real_chromium:until(Page, "document.body.dataset.state === 'paused'"),
    quiet(Page).

%% The colours follow the system, until the reader chooses; the choice is kept.
schemes_and_themes(Config) ->
    Page = page(Config, dash(#{}), #{scheme => light}),
    live(Page),
    Ground = "getComputedStyle(document.body).backgroundColor",
    Light = real_chromium:eval(Page, Ground),
    real_chromium:scheme(Page, dark),
    real_chromium:until(Page, [Ground, " !== '", Light, "'"]),
    Dark = real_chromium:eval(Page, Ground),
    Click = "document.querySelector('#theme').click()",
    [begin
         real_chromium:eval(Page, Click),
         ?assertEqual({Theme, Colour}, {Theme, real_chromium:eval(Page, Ground)}),
         ?assertEqual(<<"Theme: ", Theme/binary>>,
                      real_chromium:eval(Page, "document.querySelector('#theme').textContent"))
     end || {Theme, Colour} <- [{<<"dark">>, Dark}, {<<"light">>, Light}]],
    real_chromium:replaced(Page, fun() -> real_chromium:command(Page, <<"Page.reload">>, #{}) end),
    live(Page),
    ?assertEqual(Light, real_chromium:eval(Page, Ground)),
    %% Text and its ground, in both: at least 4.5.
    [begin
         real_chromium:eval(Page, ["document.documentElement.dataset.theme = '", Theme, "'"]),
         ?assertEqual({Theme, []}, {Theme, real_chromium:eval(Page, pale())})
     end || Theme <- ["dark", "light"]],
    quiet(Page).

%% Names of colours of text that have less contrast than 4.5 with a ground they stand on.
pale() ->
    "(() => { const s = getComputedStyle(document.documentElement); const lum = n => { "
    "const h = s.getPropertyValue('--' + n).trim(); const c = [1, 3, 5].map(i => "
    "parseInt(h.slice(i, i + 2), 16) / 255).map(v => v <= 0.03928 ? v / 12.92 : "
    "((v + 0.055) / 1.055) ** 2.4); return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; }; "
    "const out = []; for (const t of ['ink', 'dim', 'strong', 'good', 'warn', 'bad', 'focus']) "
    "for (const g of ['ground', 'panel', 'raised']) { const [a, b] = [lum(t), lum(g)].sort("
    "(x, y) => y - x); if ((a + 0.05) / (b + 0.05) < 4.5) out.push(t + ' on ' + g); } "
    "return out; })()".

pause_keeps_what_is_shown(Config) ->
    Page = page(Config, dash(#{})),
    live(Page),
    Facts = "document.querySelector('#facts').textContent",
    real_chromium:until(Page, [Facts, ".includes('up')"]),
    real_chromium:eval(Page, "document.querySelector('#pause').click()"),
    ?assertEqual(<<"paused">>, real_chromium:eval(Page, "document.body.dataset.state")),
    Tables = "[...document.querySelectorAll('tbody')].map(e => e.textContent).join()",
    Before = real_chromium:eval(Page, [Facts, " + ", Tables]),
    #{samples := Samples} = erlane_dash:info(),
    %% Samples go on and arrive; what is shown stays.
    real_os:until(fun() -> #{samples := N} = erlane_dash:info(), true = N > Samples + 5 end),
    ?assertEqual(Before, real_chromium:eval(Page, [Facts, " + ", Tables])),
    real_chromium:eval(Page, "document.querySelector('#pause').click()"),
    live(Page),
    real_chromium:until(Page, [Facts, " + ", Tables, " !== ", js(Before)]),
    quiet(Page).

js(Text) -> erlane_dash_json:encode(Text).

%% Search, choose with the keyboard, and see a rate, quantiles and text.
family_is_found_and_charted(Config) ->
    Hits = erlane_metrics:handle(erlane_metrics:counter(#{name => <<"shop_hits">>,
                                                          help => <<"Hits of the shop">>,
                                                          labels => [<<"page">>]}), [<<"a\"b">>]),
    Took = erlane_metrics:handle(erlane_metrics:histogram(#{name => <<"shop_took">>,
                                                            help => <<"Time it took">>}), []),
    Build = erlane_metrics:handle(erlane_metrics:info(#{name => <<"shop_build">>,
                                                        help => <<"What runs">>}), []),
    ok = erlane_metrics:set(Build, [{<<"version">>, <<"1.2">>}]),
    Page = page(Config, dash(#{})),
    live(Page),
    real_chromium:until(Page, "document.querySelectorAll('#fam-list li').length > 3"),
    real_chromium:press(Page, <<"/">>),
    real_chromium:press(Page, <<"shop hits">>),
    real_chromium:until(Page, "document.querySelectorAll('#fam-list li').length === 1"),
    real_chromium:key(Page, <<"Enter">>),
    ?assertEqual(<<"shop_hits">>, text(Page, "#fam-name")),
    Load = spawn_link(fun Load() ->
                              ok = erlane_metrics:add(Hits, 20),
                              ok = erlane_metrics:observe(Took, 4000000),
                              receive after 20 -> Load() end
                      end),
    Rate = "parseFloat(document.querySelector('#fam-table tbody td:last-child').textContent)",
    real_chromium:until(Page, [Rate, " > 100"]),
    ?assertEqual(<<"page=\"a\\\"b\"">>, text(Page, "#fam-table tbody th")),
    choose(Page, "shop_took_seconds"),
    %% p50 within the error of the histogram.
    real_chromium:until(Page, "Math.abs(parseFloat(document.querySelector("
                              "'#fam-table tbody tr').cells[4].textContent) - 4) < 0.3"),
    real_chromium:until(Page, ["(", painted("#fam-chart canvas"), ") > 500"]),
    choose(Page, "shop_build"),
    real_chromium:until(Page, "document.querySelector('#fam-table tbody td').textContent === "
                              "'version=\"1.2\"'"),
    unlink(Load),
    exit(Load, kill),
    %% The choice is in the address.
    ?assertEqual(<<"#family=shop_build">>, real_chromium:eval(Page, "location.hash")),
    quiet(Page).

choose(Page, Name) ->
    real_chromium:eval(Page, ["(() => { const s = document.querySelector('#fam-search'); "
                              "s.value = '", Name, "'; s.dispatchEvent(new Event('input')); "
                              "document.querySelector('#fam-list li').click(); })()"]),
    ?assertEqual(list_to_binary(Name), text(Page, "#fam-name")).

text(Page, Selector) ->
    real_chromium:eval(Page, ["document.querySelector('", Selector, "').textContent"]).

%% What others choose the names of is never taken for a part of the page.
names_are_only_text(Config) ->
    Evil = <<"</script><img src=x onerror=\"document.title='got'\">">>,
    _ = erlane_metrics:handle(erlane_metrics:gauge(#{name => <<"evil">>, help => Evil,
                                                     labels => [<<"l">>]}), [Evil]),
    Name = binary_to_atom(Evil),
    Waiter = spawn(fun() -> receive stop -> ok end end),
    true = register(Name, Waiter),
    [Waiter ! N || N <- lists:seq(1, 1000)],
    Url = dash(#{proxies => fun() -> [#{name => Evil, state => Name, connections => 1}] end}),
    Page = page(Config, [Url, "#family=evil"]),
    live(Page),
    real_chromium:until(Page, "document.querySelector('#fam-table tbody th')"),
    real_chromium:until(Page, "document.querySelector('#proxy-table tbody th')"),
    real_chromium:eval(Page, "[...document.querySelectorAll('#proc-table button')]"
                             ".find(b => b.textContent === 'Mailbox').click()"),
    real_chromium:until(Page, ["[...document.querySelectorAll('#proc-table td')].some(e => "
                               "e.textContent === ", js(Evil), ")"]),
    ?assertEqual(0, real_chromium:eval(Page, "document.querySelectorAll('img').length")),
    ?assertNotEqual(<<"got">>, real_chromium:eval(Page, "document.title")),
    Waiter ! stop,
    quiet(Page).

%% The end of the node is told at once and clearly; when it is back the page is loaded anew, for
%% the history is another, and the old one does not say before that all is well.
breaks_and_comes_back(Config) ->
    Url = dash(#{}),
    #{port := Port} = erlane_dash:info(),
    Page = page(Config, Url),
    live(Page),
    ok = erlane_dash:stop(),
    real_chromium:until(Page, "document.body.dataset.state === 'broken'"),
    ?assertMatch({match, _}, re:run(text(Page, "#status"), "disconnected, trying again")),
    real_chromium:eval(Page, "sessionStorage.states = ''; new MutationObserver(() => { "
                             "sessionStorage.states += document.body.dataset.state + ' '; })"
                             ".observe(document.body, { attributeFilter: ['data-state'] })"),
    real_chromium:replaced(Page, fun() ->
                                         real_os:until(fun() -> Url = dash(#{port => Port}) end)
                                 end),
    live(Page),
    States = real_chromium:eval(Page, "sessionStorage.states"),
    ?assertEqual({States, <<"connecting">>}, {States, lists:last(words(States))}),
    ?assertNot(lists:member(<<"live">>, words(States)), States),
    %% It has complained, about the connection.
    real_chromium:close(Page).

words(Text) -> string:lexemes(Text, " ").

%% The token leaves the address, is out of reach of scripts, and opens everything.
token_by_link_and_by_form(Config) ->
    Url = dash(#{token => ?TOKEN}),
    Page = page(Config, [Url, "?token=", ?TOKEN]),
    live(Page),
    ?assertEqual(<<"/">>, real_chromium:eval(Page, "location.pathname + location.search")),
    ?assertEqual(<<>>, real_chromium:eval(Page, "document.cookie")),
    ?assertEqual(200, real_chromium:eval(Page, "fetch('metrics').then(r => r.status)")),
    quiet(Page),
    %% Another profile has no cookie.
    Other = page(Config, Url),
    real_chromium:until(Other, "document.querySelector('#token')"),
    Enter = fun(Text) ->
                    real_chromium:until(Other, "document.activeElement.id === 'token'"),
                    real_chromium:press(Other, Text),
                    real_chromium:key(Other, <<"Enter">>)
            end,
    Enter(<<"not-the-token-at-all">>),
    real_chromium:until(Other, "location.pathname === '/token' && "
                               "document.querySelector('#token')"),
    Enter(?TOKEN),
    live(Other),
    ?assertEqual(<<"/">>, real_chromium:eval(Other, "location.pathname")),
    real_chromium:close(Other).

%% An hour of samples, one after the other, of a node with processes and proxies that come and
%% go: the heap is what it was after the first quarter of an hour, and so is the page.
memory_does_not_grow_with_samples(Config) ->
    Hook = <<"const Real = window.EventSource; window.EventSource = class extends Real { "
             "constructor(...a) { super(...a); window.source = this; } };">>,
    Page = page(Config, dash(#{interval => 3600000}), #{script => Hook}),
    real_chromium:until(Page, "document.body.dataset.state === 'live' && window.source"),
    real_chromium:eval(Page, flood()),
    %% Twice the ring, so that everything has its final size.
    real_chromium:eval(Page, "flood(0, 1800)"),
    {Heap1, Nodes1} = used(Page),
    real_chromium:eval(Page, "flood(1800, 5400)"),
    %% One collection does not find all that the last turns have let go.
    real_os:until(fun() ->
                          {Heap2, Nodes2} = used(Page),
                          ct:pal("heap ~b -> ~b bytes, nodes ~b -> ~b",
                                 [Heap1, Heap2, Nodes1, Nodes2]),
                          {true, _, _} = {Heap2 < Heap1 + 400000, Heap1, Heap2},
                          {true, _, _} = {Nodes2 < Nodes1 + 100, Nodes1, Nodes2}
                  end),
    ?assertMatch({match, _}, re:run(text(Page, "#facts"), "up 1:29:59|up 01:29:59")),
    quiet(Page).

%% A tick of each second; 1 of 50 is drawn, as fast as the browser draws.
flood() ->
    <<"window.flood = async (from, to) => { const t0 = window.t0 ??= Date.now(); "
      "for (let i = from; i < to; i += 1) { const w = Math.sin(i / 50) + 2; "
      "const ids = [1, 2, 3, 4]; const all = v => ids.map(() => v); "
      "const core = { t: t0 + i * 1000, lanes: { id: ids, waits: all(w), events: all(w), "
      "epw: all(1), sockets: all(3), in: all(w * 1000), out: all(w), accepted: all(1), "
      "relays: all(0), moved: all(0), sleeps: all(0) }, sched: { id: ids, util: all(w / 4), "
      "queue: all(1) }, runq: { total: 1, max: 1, dirty: 0 }, mem: { total: 9e6 * w, "
      "processes: 4e6 * w, binary: 1e6, ets: 1e6, code: 1e6, atom: 1e6, other: 1e6 }, "
      "used: { processes: 100, ports: 3, atoms: 9, ets: 9 }, "
      "rate: { reductions: w * 1e6, gc: 1, io_in: 1, io_out: 1 }, "
      "dist: { id: ['n' + (i >> 6)], in: [w], out: [w], queue: [0] }, "
      "proxies: { id: ['p' + (i >> 5)], connections: [1], accepted: [1], in: [w], out: [w] } }; "
      "const procs = Array.from({ length: 30 }, (_, k) => ({ pid: `<0.${i * 7 + k}.0>`, "
      "name: 'name' + k, current: 'm:f/1', reds: w * k, memory: 1000 * k, mailbox: k })); "
      "const limits = { processes: 1000, ports: 1000, atoms: 1000, ets: null }; "
      "const proxies = [{ state: 'listening', listen: 'a', to: 'b', servers: 1, up: 1, "
      "errors: 0 }]; const detail = { uptime: i, online: 4, limits, procs, proxies }; "
      "source.dispatchEvent(new MessageEvent('tick', "
      "{ data: JSON.stringify({ core, detail }) })); "
      "if (i % 50 === 0) await new Promise(requestAnimationFrame); } };">>.

%% After a collection of everything that can go.
used(Page) ->
    _ = real_chromium:command(Page, <<"HeapProfiler.collectGarbage">>, #{}),
    #{<<"usedSize">> := Heap} = real_chromium:command(Page, <<"Runtime.getHeapUsage">>, #{}),
    #{<<"nodes">> := Nodes} = real_chromium:command(Page, <<"Memory.getDOMCounters">>, #{}),
    {round(Heap), Nodes}.

%% Both sizes, light and dark: four pictures, none of them empty.
screenshots(Config) ->
    Dir = os:getenv("ERLANE_SCREENSHOTS"),
    {Interval, Held} = case Dir of
                           false -> {50, 10};
                           _ -> {250, 250}
                       end,
    Moved = counters:new(1, []),
    Proxies = fun() ->
                      N = counters:get(Moved, 1),
                      [#{name => web, state => listening, listen => {{0, 0, 0, 0}, 8080},
                         to => {{10, 0, 0, 7}, 80}, connections => 412, accepted => N div 10,
                         to_upstream => N * 310, to_client => N * 1800}]
              end,
    Url = dash(#{proxies => Proxies, interval => Interval, history => Interval}),
    Stops = [traffic(Moved) || _ <- lists:seq(1, 12)],
    Stop = fun() -> [S() || S <- Stops] end,
    real_os:until(fun() -> #{held := N} = erlane_dash:info(), true = N >= Held end, 120000),
    Shots = [begin
                 Page = page(Config, Url, #{size => Size, scheme => Scheme}),
                 live(Page),
                 real_chromium:eval(Page, "document.querySelector('input[value=\"60\"]').click()"),
                 real_chromium:until(Page, "document.querySelector('#proxy-table tbody tr')"),
                 real_chromium:until(Page, ["(", painted("#lane-charts canvas"), ") > 500"]),
                 Png = real_chromium:screenshot(Page),
                 quiet(Page),
                 {Name, Size, Png}
             end || {Size, Kind} <- [{{1280, 900}, "dash"}, {{390, 844}, "dash-phone"}],
                    Scheme <- [dark, light],
                    Name <- [lists:concat([Kind, "-", Scheme, ".png"])]],
    Stop(),
    [begin
         ?assertEqual({Name, Size}, {Name, real_png:size(Png)}),
         ?assert(byte_size(Png) > 10000, {Name, byte_size(Png)}),
         [keep(filename:join(Dir, Name), real_png:compact(Png)) || Dir =/= false]
     end || {Name, Size, Png} <- Shots].

keep(File, Png) ->
    ?assert(byte_size(Png) < 150000, {File, byte_size(Png)}),
    ok = file:write_file(File, Png).
