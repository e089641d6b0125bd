%% SPDX-License-Identifier: Apache-2.0
%% The flame graph page in a real browser, opened as a file: Chromium, headless. Each case has a
%% page of its own, and ends with nothing in the browser's console and no request made.
%%
%% With ERLANE_SCREENSHOTS set to a directory the case `screenshots' leaves its pictures there.
-module(real_flame_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([sums_are_those_of_the_profile/1, search_finds_and_counts_once/1, zoom_by_mouse/1,
         keyboard_alone/1, states_and_filters/1, work_comes_first/1, groups_and_recursion/1,
         difference/1, schemes_and_themes/1, names_are_only_text/1, no_network/1,
         deep_and_wide/1, from_the_live_page/1, latency_page/1,
         nothing_is_wider_than_the_page/1, screenshots/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [sums_are_those_of_the_profile, search_finds_and_counts_once, zoom_by_mouse, keyboard_alone,
     states_and_filters, work_comes_first, groups_and_recursion, difference,
     schemes_and_themes, names_are_only_text, no_network, deep_and_wide, from_the_live_page,
     latency_page,
     nothing_is_wider_than_the_page, screenshots].

init_per_suite(Config) ->
    Dir = lists:concat(["/tmp/erlane_flame.", os:getpid()]),
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
        {Owner, {ok, Browser}} -> [{browser, Browser}, {owner, Owner}, {dir, Dir} | Config]
    end.

end_per_suite(Config) ->
    Owner = proplists:get_value(owner, Config),
    Owner ! stop,
    receive {Owner, stopped} -> ok after 10000 -> ok end,
    file:del_dir_r(proplists:get_value(dir, Config)).

page(Config, Profile) -> page(Config, Profile, #{}).

page(Config, Profile, Options) ->
    Name = lists:concat(["flame", erlang:unique_integer([positive]), ".html"]),
    File = filename:join(proplists:get_value(dir, Config), Name),
    ok = erlane_prof_file:write(Profile, File),
    Page = real_chromium:open(proplists:get_value(browser, Config),
                              Options#{url => ["file://", File]}),
    real_chromium:until(Page, "document.body && document.body.dataset.state === 'ready' && "
                              "document.querySelector('#canvas').dataset.painted"),
    Page.

%% The last thing of a page: nobody complained, nothing but the file was asked for.
quiet(Page) ->
    ?assertEqual([], real_chromium:faults(Page)),
    ?assertEqual([], [Url || #{<<"request">> := #{<<"url">> := Url}}
                                 <- real_chromium:events(Page, <<"Network.requestWillBeSent">>),
                             binary:part(Url, 0, 5) =/= <<"file:">>,
                             binary:part(Url, 0, 5) =/= <<"data:">>]),
    real_chromium:close(Page).

text(Page, Selector) ->
    real_chromium:eval(Page, ["document.querySelector('", Selector, "').textContent"]).

set(Page, Selector, Value, Event) ->
    real_chromium:eval(Page, ["(() => { const e = document.querySelector('", Selector, "'); "
                              "e.value = '", Value, "'; e.dispatchEvent(new Event('", Event,
                              "', { bubbles: true })); })()"]).

total(Page) -> binary_to_integer(real_chromium:eval(Page, "document.body.dataset.total")).

zoomed(Page) -> real_chromium:eval(Page, "Page.zoomed().name").

chosen(Page) -> real_chromium:eval(Page, "Page.chosen() && Page.chosen().name").

%%% a profile

frame(M, F) -> {M, F, 1, iolist_to_binary([atom_to_list(M), ".erl"]), 10}.

row(Proc, App, State, Frames, Value) ->
    #{proc => Proc, app => App, state => State, values => [Value, Value * 1000000],
      stack => [frame(M, F) || {M, F} <- Frames]}.

rows() ->
    Serve = [{proc_lib, init_p}, {gen_server, loop}, {cart, handle_call}],
    [row(<<"cart">>, shop, running, Serve ++ [{price, total}, {lists, foldl}, {price, discount}],
         240),
     row(<<"cart">>, shop, running, Serve ++ [{price, total}, {maps, get}], 90),
     row(<<"cart">>, shop, gc, Serve ++ [{price, total}], 30),
     row(<<"cart">>, shop, waiting, [{proc_lib, init_p}, {gen_server, loop}], 160),
     row(<<"conn:init/1">>, http, waiting, [{proc_lib, init_p}, {conn, loop}, {gen_tcp, recv}],
         310),
     row(<<"conn:init/1">>, http, running, [{proc_lib, init_p}, {conn, loop}, {head, parse}], 110),
     row(<<"conn:init/1">>, http, runnable, [{proc_lib, init_p}, {conn, loop}, {head, parse}], 40),
     row(<<"tree">>, jobs, running, [{proc_lib, init_p}] ++ lists:duplicate(9, {tree, walk}), 20)].

profile(Rows) ->
    erlane_prof_profile:new(#{mode => sample, node => 'shop@10.0.0.7', began => 1795325000000000,
                              ns => 10000000000, rows => Rows, lost => 2, otp => <<"27">>,
                              notes => [<<"running processes are seen at their yields">>],
                              values => [#{name => samples, unit => count},
                                         #{name => wall, unit => nanoseconds}]}).

profile() -> profile(rows()).

%%% cases

%% From the page of a node with a token: a sample of two seconds, in a box of its own, where all
%% works that works in a file.
from_the_live_page(Config) ->
    {ok, _} = application:ensure_all_started(erlane_dash),
    {ok, #{url := Url}} = erlane_dash:start(#{token => <<"a-token-for-the-tests-0123456789">>}),
    try
        Page = real_chromium:open(proplists:get_value(browser, Config),
                                  #{url => [Url, "?token=a-token-for-the-tests-0123456789"]}),
        real_chromium:until(Page, "document.body.dataset.state === 'live'"),
        %% Here and not in a window of its own, which this browser's driver would not see.
        set(Page, "#profile-for", "2", "change"),
        real_chromium:eval(Page, "document.querySelector('#profile').form.target = '_self'; "
                                 "document.querySelector('#profile').click()"),
        real_chromium:until(Page, "document.body && document.body.dataset.state === 'ready' && "
                                  "document.querySelector('#canvas').dataset.painted", 40000),
        ?assertEqual(<<"null">>, real_chromium:eval(Page, "window.origin")),
        ?assert(total(Page) > 0),
        set(Page, "#search", "/./", "input"),
        real_chromium:until(Page, "/100.0 % in [0-9]+ frame/.test("
                                  "document.querySelector('#found').textContent)"),
        ?assertEqual([], real_chromium:faults(Page)),
        real_chromium:close(Page)
    after
        ok = application:stop(erlane_dash),
        ok = application:stop(erlane_http)
    end.

%% Histograms are a page that needs no script: bars, quantiles, both schemes, two sizes.
latency_page(Config) ->
    Spread = fun(F, Values) ->
                     #{function => {shop, F, 1}, file => <<"shop.erl">>, ns => lists:sum(Values),
                       min => lists:min(Values), max => lists:max(Values), dropped => false,
                       open => 0, slowest => [#{ns => lists:max(Values), at => 1795325000000000,
                                                pid => <<"<0.99.0>">>, proc => <<"<b>cart">>,
                                                caller => {shop, order, 2}}],
                       buckets => lists:foldl(fun erlane_prof_histogram:add/2, #{}, Values)}
             end,
    Values = [round(200000 * math:exp(N / 90)) || N <- lists:seq(1, 400)],
    Profile = erlane_prof_profile:new(#{mode => latency, node => 'shop@10.0.0.7', rows => [],
                                        values => [#{name => time, unit => nanoseconds},
                                                   #{name => calls, unit => count}],
                                        began => 1795325000000000, ns => 10000000000,
                                        latency => [Spread(total, Values),
                                                    Spread(price, [7, 9, 12])]}),
    File = filename:join(proplists:get_value(dir, Config), "latency.html"),
    ok = erlane_prof_file:write(Profile, File),
    Page = real_chromium:open(proplists:get_value(browser, Config), #{url => ["file://", File]}),
    real_chromium:until(Page, "document.querySelectorAll('section svg rect').length > 20"),
    ?assertEqual(<<"<b>cart <0.99.0>">>, text(Page, ".slow tbody td:nth-child(3)")),
    ?assertEqual(2, real_chromium:eval(Page, "document.querySelectorAll('section').length")),
    Ground = fun() -> real_chromium:eval(Page, "getComputedStyle(document.body).backgroundColor")
             end,
    Dark = Ground(),
    real_chromium:scheme(Page, light),
    ?assertNotEqual(Dark, Ground()),
    [begin
         real_chromium:size(Page, W, H, 1),
         real_chromium:until(Page, ["document.documentElement.scrollWidth <= ",
                                    integer_to_list(W)])
     end || {W, H} <- [{390, 844}, {1280, 900}]],
    quiet(Page).

%% The page's own sums are those of top/3, by function and in all; the other column, too.
sums_are_those_of_the_profile(Config) ->
    Page = page(Config, profile()),
    ?assertEqual(1000, total(Page)),
    Sums = real_chromium:eval(Page, "(() => { const o = {}; const m = Model.load(JSON.parse("
                                    "document.querySelector('#data').textContent)); "
                                    "for (const e of Model.functionsOf(m, Page.tree())) "
                                    "o[e.name] = [e.self, e.total]; return o; })()"),
    ?assertEqual(maps:from_list([{erlane_prof_text:name(F), [S, T]}
                                 || #{function := F, self := S, total := T}
                                        <- erlane_prof_profile:top(profile(), main, all)]), Sums),
    set(Page, "#column", "1", "change"),
    ?assertEqual(1000000000, total(Page)),
    ?assertMatch({match, _}, re:run(text(Page, "#path"), "1\\.00 s")),
    quiet(Page).

search_finds_and_counts_once(Config) ->
    Page = page(Config, profile()),
    real_chromium:press(Page, <<"/">>),
    real_chromium:press(Page, <<"price">>),
    %% 240 + 90 + 30, although `discount' is below `total'.
    real_chromium:until(Page, "document.querySelector('#found').textContent.startsWith('36.0')"),
    ?assertEqual(<<"36.0 % in 3 frames">>, text(Page, "#found")),
    real_chromium:key(Page, <<"Enter">>),
    ?assertEqual(<<"price:total/1">>, chosen(Page)),
    set(Page, "#search", "/^(maps|head):/", "input"),
    ?assertEqual(<<"24.0 % in 3 frames">>, text(Page, "#found")),
    set(Page, "#search", "/(/", "input"),
    ?assertEqual(<<"nothing found">>, text(Page, "#found")),
    %% A function of the table is looked for.
    real_chromium:eval(Page, "document.querySelector('#functions tbody button').click()"),
    ?assertEqual(<<"gen_tcp:recv/1">>, chosen(Page)),
    real_chromium:eval(Page, "document.querySelector('#search').focus()"),
    real_chromium:key(Page, <<"Escape">>),
    ?assertEqual(<<>>, text(Page, "#found")),
    quiet(Page).

%% A click zooms, the frames above stay, one of them leads back; the tip says what is under it.
zoom_by_mouse(Config) ->
    Page = page(Config, profile()),
    Mouse = fun(Type, #{<<"x">> := X, <<"y">> := Y}) ->
                    real_chromium:command(Page, <<"Input.dispatchMouseEvent">>,
                                          #{type => Type, x => X, y => Y, button => left,
                                            clickCount => 1})
            end,
    Click = fun(Name) ->
                    At = real_chromium:eval(Page, ["Page.graph.place(Page.tree().all.find(n => "
                                                   "n.name === '", Name, "' && n.value > 0))"]),
                    _ = Mouse(mouseMoved, At),
                    ?assertMatch({match, _}, re:run(text(Page, "#tip"), ["^", Name])),
                    _ = Mouse(mousePressed, At),
                    _ = Mouse(mouseReleased, At)
            end,
    Click("price:total/1"),
    ?assertEqual({<<"price:total/1">>, <<"price:total/1">>}, {zoomed(Page), chosen(Page)}),
    ?assertEqual(true, real_chromium:eval(Page, "Math.abs(Page.graph.width(Page.zoomed()) - "
                                                "Page.graph.wide) < 1")),
    real_chromium:eval(Page, "document.querySelector('#path button').click()"),
    ?assertEqual(<<"all">>, zoomed(Page)),
    %% With the flames upwards frames are found under the pointer just as well.
    real_chromium:eval(Page, "document.querySelector('#flip').click()"),
    Click("conn:loop/1"),
    ?assertEqual(<<"conn:loop/1">>, zoomed(Page)),
    quiet(Page).

%% Everything without a mouse: to the graph, through it, in, out, search, help.
keyboard_alone(Config) ->
    Page = page(Config, profile()),
    real_chromium:eval(Page, "document.querySelector('#graph').focus()"),
    Key = fun(Name) -> real_chromium:key(Page, Name), chosen(Page) end,
    ?assertEqual(<<"all">>, Key(<<"ArrowDown">>)),
    ?assertEqual(<<"waiting">>, Key(<<"ArrowDown">>)),
    ?assertEqual(<<"running">>, Key(<<"ArrowRight">>)),
    ?assertEqual(<<"waiting">>, Key(<<"ArrowLeft">>)),
    ?assertEqual(<<"conn:init/1">>, Key(<<"ArrowDown">>)),
    ?assertMatch({match, _}, re:run(text(Page, "#said"), "^conn:init/1, 31\\.0 %, self 0\\.0 %")),
    real_chromium:key(Page, <<"Enter">>),
    ?assertEqual(<<"conn:init/1">>, zoomed(Page)),
    real_chromium:key(Page, <<"Escape">>),
    ?assertEqual(<<"waiting">>, zoomed(Page)),
    real_chromium:press(Page, <<"0">>),
    ?assertEqual(<<"all">>, zoomed(Page)),
    real_chromium:press(Page, <<"?">>),
    ?assertEqual(true, real_chromium:eval(Page, "document.querySelector('#keys').open")),
    real_chromium:key(Page, <<"Escape">>),
    real_chromium:until(Page, "!document.querySelector('#keys').open"),
    %% Tab reaches every control, in the order in which they are seen.
    Want = real_chromium:eval(Page, "[...document.querySelectorAll('a, input, select, button, "
                                    "[tabindex]')].filter(e => e.offsetParent !== null && "
                                    "!e.closest('table')).length"),
    real_chromium:eval(Page, "document.activeElement.blur(); window.reached = new Set(); "
                             "document.addEventListener('focusin', e => { "
                             "if (!e.target.closest('table')) reached.add(e.target); })"),
    [real_chromium:key(Page, <<"Tab">>) || _ <- lists:seq(1, Want + 30)],
    ?assertEqual([], real_chromium:eval(Page, "[...document.querySelectorAll('input, select, "
                                              "button, [tabindex]')].filter(e => "
                                              "e.offsetParent !== null && !e.closest('table') && "
                                              "!reached.has(e)).map(e => e.id || "
                                              "e.textContent)")),
    quiet(Page).

states_and_filters(Config) ->
    Page = page(Config, profile()),
    Chip = fun(Name) ->
                   real_chromium:eval(Page, ["[...document.querySelectorAll('#states button')]"
                                             ".find(b => b.textContent.startsWith('", Name,
                                             "')).click()"]),
                   total(Page)
           end,
    ?assertEqual(490, Chip("On CPU")),
    ?assertEqual(510, Chip("Off CPU")),
    ?assertEqual(1000, Chip("All")),
    ?assertEqual(530, Chip("waiting")),
    ?assertEqual(1000, Chip("waiting")),
    set(Page, "#proc", "cart", "input"),
    ?assertEqual(520, total(Page)),
    set(Page, "#proc", "nobody", "input"),
    ?assertEqual(true, real_chromium:eval(Page, "document.querySelector('#none').offsetParent "
                                                "!== null")),
    real_chromium:eval(Page, "document.querySelector('#clear').click()"),
    ?assertEqual(1000, total(Page)),
    set(Page, "#app", "http", "change"),
    ?assertEqual(460, total(Page)),
    quiet(Page).

%% Where nearly everything waits the page begins with what works, and says so; notes can be read.
work_comes_first(Config) ->
    Idle = row(<<"idle">>, shop, waiting, [{idle, loop}], 9000),
    Page = page(Config, profile([Idle | rows()])),
    ?assertEqual(530, total(Page)),
    ?assertEqual(<<"false">>, real_chromium:eval(Page, "[...document.querySelectorAll("
                                                       "'#states button')].find(b => b.textContent"
                                                       ".startsWith('waiting')).ariaPressed")),
    real_chromium:eval(Page, "document.querySelector('#states button').click()"),
    ?assertEqual(10000, total(Page)),
    real_chromium:eval(Page, "document.querySelector('#notes').click()"),
    ?assertEqual(<<"running processes are seen at their yields">>, text(Page, "#noted li")),
    real_chromium:key(Page, <<"Escape">>),
    real_chromium:until(Page, "!document.querySelector('#all-notes').open"),
    quiet(Page).

groups_and_recursion(Config) ->
    Page = page(Config, profile()),
    First = fun() -> real_chromium:eval(Page, "Page.tree().root.list.map(n => n.name)") end,
    Walks = "Page.tree().all.filter(n => n.name === 'tree:walk/1').length",
    ?assertEqual([<<"waiting">>, <<"running">>, <<"runnable">>, <<"gc">>], First()),
    set(Page, "#group", "app", "change"),
    ?assertEqual([<<"shop">>, <<"http">>, <<"jobs">>], First()),
    set(Page, "#group", "", "change"),
    ?assertEqual([<<"proc_lib:init_p/1">>], First()),
    ?assertEqual(1, real_chromium:eval(Page, Walks)),
    real_chromium:eval(Page, "document.querySelector('#fold').click()"),
    ?assertEqual(9, real_chromium:eval(Page, Walks)),
    ?assertEqual(1000, total(Page)),
    quiet(Page).

%% What grew is warm, what shrank is cold, what is gone is still there.
difference(Config) ->
    {ok, Diff} = erlane_prof_profile:diff(profile(), after_profile()),
    Page = page(Config, Diff),
    ?assertEqual(1240, total(Page)),
    set(Page, "#group", "", "change"),
    Hue = fun(Name) ->
                  real_chromium:eval(Page, ["(() => { const n = Page.tree().all.find(n => n.name "
                                            "=== '", Name, "'); return Page.graph.colourOf(n)[0]"
                                            "; })()"])
          end,
    ?assertEqual({28, 255}, {Hue("gen_tcp:recv/1"), Hue("price:discount/1")}),
    ?assertEqual(true, real_chromium:eval(Page, "Page.tree().all.some(n => n.name === "
                                                "'tree:walk/1' && n.now === 0 && n.value > 0)")),
    set(Page, "#width", "after", "change"),
    ?assertEqual(false, real_chromium:eval(Page, "Page.tree().all.some(n => n.name === "
                                                 "'tree:walk/1' && n.value > 0)")),
    ?assertMatch({match, _}, re:run(text(Page, "#functions tbody tr"), "gen_tcp:recv/1")),
    quiet(Page).

after_profile() ->
    profile([R#{values := [V * F || V <- Values]}
             || #{stack := Stack, values := Values} = R <- rows(),
                F <- [case lists:last(Stack) of
                          {gen_tcp, _, _, _, _} -> 2;
                          {tree, _, _, _, _} -> 0;
                          {price, discount, _, _, _} -> 0.79166667;
                          _ -> 1
                      end]]).

%% The system's colours, and the reader's; text on its ground has a contrast of 4.5, on every frame
%% that can be.
schemes_and_themes(Config) ->
    Page = page(Config, profile(), #{scheme => light}),
    Ground = "getComputedStyle(document.body).backgroundColor",
    Light = real_chromium:eval(Page, Ground),
    real_chromium:scheme(Page, dark),
    real_chromium:until(Page, [Ground, " !== '", Light, "' && Page.graph.dark"]),
    Dark = real_chromium:eval(Page, Ground),
    [begin
         real_chromium:eval(Page, "document.querySelector('#theme').click()"),
         ?assertEqual({Theme, Colour}, {Theme, real_chromium:eval(Page, Ground)}),
         ?assertEqual({Theme, []}, {Theme, real_chromium:eval(Page, pale())})
     end || {Theme, Colour} <- [{<<"light">>, Light}, {<<"dark">>, Dark}]],
    quiet(Page).

%% Pairs of text and ground with less contrast than 4.5: of the page, and of frames of all hues.
pale() ->
    "(() => { const s = getComputedStyle(document.documentElement); const lum = c => { "
    "const p = c.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** "
    "2.4); return 0.2126 * p[0] + 0.7152 * p[1] + 0.0722 * p[2]; }; const name = n => { const h = "
    "s.getPropertyValue('--' + n).trim(); return [1, 3, 5].map(i => parseInt(h.slice(i, i + 2), "
    "16)); }; const bad = (x, y) => { const [a, b] = [lum(x), lum(y)].sort((p, q) => q - p); "
    "return (a + 0.05) / (b + 0.05) < 4.5; }; const out = []; for (const t of ['ink', 'dim', "
    "'strong', 'more', 'less']) for (const g of ['ground', 'panel', 'raised']) "
    "if (bad(name(t), name(g))) out.push(t + ' on ' + g); "
    "const frame = (tone, k, faded) => Colour.fill(tone, 'f' + k, Page.graph.dark, faded)"
    ".match(/\\d+/g).map(Number); const tones = [...Object.values(Colour.STATES), Colour.FOUND, "
    "[28, 0.17], [255, 0.17]]; for (let h = 0; h < 360; h += 15) tones.push([h, 0.1]); "
    "for (const tone of tones) for (let k = 0; k < 40; k += 1) { "
    "if (bad(name('frame-ink'), frame(tone, k, false))) out.push('frame ' + tone); "
    "if (bad(name('dim'), frame(tone, k, true))) out.push('faded ' + tone); } "
    "return [...new Set(out)]; })()".

%% What others choose the names of is never taken for a part of the page.
names_are_only_text(Config) ->
    Evil = <<"</script><img src=x onerror=\"document.title='got'\">">>,
    Atom = binary_to_atom(Evil),
    Rows = [#{proc => Evil, app => Atom, state => State, pid => Evil, values => [1, 1],
              stack => [{Atom, Atom, 1, Evil, 1}, Evil]} || State <- [running, waiting]],
    Page = page(Config, (profile(Rows))#{node := Atom, notes := [Evil]}),
    real_chromium:eval(Page, "document.querySelector('#functions tbody button').click()"),
    ?assertNotEqual(nomatch, binary:match(text(Page, "#chosen"), <<"<img src=x">>)),
    ?assertEqual(0, real_chromium:eval(Page, "document.querySelectorAll('img').length")),
    ?assertNotEqual(<<"got">>, real_chromium:eval(Page, "document.title")),
    quiet(Page).

%% The page may not ask for anything, even if it wanted to.
no_network(Config) ->
    Page = page(Config, profile()),
    ?assertEqual(<<"refused">>,
                 real_chromium:eval(Page, "fetch('https://127.0.0.1:9/').then(() => 'done', "
                                          "() => 'refused')")),
    ?assertNotEqual([], [E || E <- real_chromium:faults(Page),
                              binary:match(iolist_to_binary(io_lib:format("~0p", [E])),
                                           <<"Content Security Policy">>) =/= nomatch]),
    real_chromium:close(Page).

%% Stacks of 512 frames, and 20,000 different ones: built and drawn in a moment, and the last
%% frame can be reached.
deep_and_wide(Config) ->
    Deep = row(<<"deep">>, jobs, running,
               [{deep, list_to_atom("f" ++ integer_to_list(N))} || N <- lists:seq(1, 512)], 5000),
    Wide = [row(<<"wide">>, jobs, waiting,
                [{wide, list_to_atom("g" ++ integer_to_list((N div D) rem 300))}
                 || D <- [5000, 500, 50, 5, 1]], 1) || N <- lists:seq(1, 20000)],
    Page = page(Config, profile([Deep | Wide])),
    ?assertEqual(25000, total(Page)),
    Ms = real_chromium:eval(Page, "(() => { const from = performance.now(); document."
                                  "querySelector('#fold').click(); Page.graph.paint(); "
                                  "return Math.round(performance.now() - from); })()"),
    ct:pal("rebuilt and drawn in ~b ms", [Ms]),
    set(Page, "#search", "deep:f512/1", "input"),
    real_chromium:eval(Page, "document.querySelector('#search').focus()"),
    real_chromium:key(Page, <<"Enter">>),
    ?assertEqual(<<"deep:f512/1">>, chosen(Page)),
    ?assertEqual(true, real_chromium:eval(Page, "(() => { const y = Page.graph.top("
                                                "Page.chosen().depth); return y >= 0 && y < "
                                                "Page.graph.high; })()")),
    quiet(Page).

nothing_is_wider_than_the_page(Config) ->
    [begin
         Page = page(Config, profile(), #{size => Size}),
         ?assertEqual({Size, true},
                      {Size, real_chromium:eval(Page, "document.documentElement.scrollWidth <= "
                                                      "window.innerWidth")}),
         quiet(Page)
     end || Size <- [{1280, 860}, {800, 700}, {390, 844}]].

%% Two sizes, light and dark, and a difference: none of them empty.
screenshots(Config) ->
    Dir = os:getenv("ERLANE_SCREENSHOTS"),
    {ok, Diff} = erlane_prof_profile:diff(profile(), after_profile()),
    Shots = [begin
                 Page = page(Config, Profile, #{size => Size, scheme => Scheme}),
                 set(Page, "#search", Search, "input"),
                 [real_chromium:press(Page, <<"n">>) || Search =/= ""],
                 drawn(Page),
                 Png = real_chromium:screenshot(Page),
                 quiet(Page),
                 {lists:concat([Kind, "-", Scheme, ".png"]), Size, Png}
             end || {Size, Kind, Profile, Search}
                        <- [{{1280, 800}, "flame", profile(), ""},
                            {{1280, 800}, "flame-search", profile(), "price"},
                            {{1280, 800}, "flame-diff", Diff, ""},
                            {{390, 844}, "flame-phone", profile(), ""}],
                    Scheme <- [dark, light]],
    [begin
         ?assertEqual({Name, Size}, {Name, real_png:size(Png)}),
         ?assert(byte_size(Png) > 10000, {Name, byte_size(Png)}),
         [ok = file:write_file(filename:join(Dir, Name), real_png:compact(Png)) || Dir =/= false]
     end || {Name, Size, Png} <- Shots].

%% The picture is drawn with the next frame.
drawn(Page) ->
    real_chromium:eval(Page, "new Promise(done => requestAnimationFrame(() => "
                             "requestAnimationFrame(done)))").
