%% SPDX-License-Identifier: Apache-2.0
%% A headless Chromium, driven through the DevTools protocol, for suites. The browser talks
%% through two pipes and listens on no port; it ends when its pipes do, so it cannot outlive the
%% process that started it. All waits have a deadline.
-module(real_chromium).

-export([start/1, stop/1, open/2, close/1, command/3, eval/2, until/2, until/3, replaced/2,
         faults/1, events/2, size/4, scheme/2, screenshot/1, key/2, press/2]).

-define(ANSWER_MS, 60000).
-define(FLAGS, ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update",
                "--disable-sync", "--disable-default-apps", "--no-default-browser-check",
                "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"]).

%% Starts a browser with an empty profile below a directory.
start(Dir) ->
    case os:find_executable("chromium") of
        false -> {skip, "chromium is not installed: make deps"};
        Chromium ->
            Self = self(),
            {Pid, _} = spawn_monitor(fun() -> init(Self, Chromium, Dir) end),
            receive
                {Pid, ready} -> {ok, Pid};
                {'DOWN', _, process, Pid, Why} -> ct:fail({chromium, Why})
            end
    end.

%% The browser reads descriptor 3 and writes descriptor 4.
init(Parent, Chromium, Dir) ->
    Watch = monitor(process, Parent),
    Port = open_port({spawn_executable, "/bin/sh"},
                     [{args, ["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh",
                              Chromium] ++ ?FLAGS ++ ["--user-data-dir=" ++ Dir, "about:blank"]},
                      binary, exit_status, {env, [{"HOME", Dir}]}]),
    Parent ! {self(), ready},
    loop(#{port => Port, watch => Watch, buffer => [], next => 1, waiting => #{}, events => []}).

loop(#{port := Port, watch := Watch, next := Id, waiting := Waiting} = State) ->
    receive
        {Port, {data, Data}} ->
            loop(received(binary:split(Data, <<0>>, [global]), State));
        {Port, {exit_status, _}} ->
            exit(browser_ended);
        {From, Ref, {command, Message}} ->
            true = port_command(Port, [erlane_dash_json:encode(Message#{id => Id}), 0]),
            loop(State#{next := Id + 1, waiting := Waiting#{Id => {From, Ref}}});
        {From, Ref, {events, Session}} ->
            Events = lists:reverse(maps:get(events, State)),
            From ! {Ref, [E || #{<<"sessionId">> := S} = E <- Events, S =:= Session]},
            loop(State);
        {_, _, stop} -> port_close(Port);
        {'DOWN', Watch, process, _, _} -> port_close(Port)
    end.

%% Messages end with a zero byte and come in any pieces.
received([Last], #{buffer := Buffer} = State) ->
    State#{buffer := [Buffer, Last]};
received([End | More], #{buffer := Buffer} = State) ->
    Message = erlane_dash_reader:read(iolist_to_binary([Buffer, End])),
    received(More, message(Message, State#{buffer := []})).

message(#{<<"id">> := Id} = Answer, #{waiting := Waiting} = State) ->
    {{From, Ref}, Others} = maps:take(Id, Waiting),
    From ! {Ref, Answer},
    State#{waiting := Others};
message(Event, #{events := Events} = State) ->
    State#{events := [Event | Events]}.

call(Pid, Request) ->
    Ref = monitor(process, Pid),
    Pid ! {self(), Ref, Request},
    receive
        {Ref, Answer} -> demonitor(Ref, [flush]), Answer;
        {'DOWN', Ref, process, Pid, Why} -> ct:fail({chromium, Why})
    after ?ANSWER_MS -> ct:fail({no_answer, Request})
    end.

stop(Pid) ->
    Ref = monitor(process, Pid),
    Pid ! {self(), Ref, stop},
    receive {'DOWN', Ref, process, Pid, _} -> ok end.

%% A page of its own (cookies, storage) at an address; `#{script}' runs before those of the page.
open(Pid, #{url := Url} = Options) ->
    #{<<"browserContextId">> := Context} =
        command({Pid, none, none}, <<"Target.createBrowserContext">>, #{}),
    #{<<"targetId">> := Target} = command({Pid, none, none}, <<"Target.createTarget">>,
                                          #{url => <<"about:blank">>,
                                            browserContextId => Context}),
    #{<<"sessionId">> := Session} = command({Pid, none, none}, <<"Target.attachToTarget">>,
                                            #{targetId => Target, flatten => true}),
    Page = {Pid, Session, Context},
    [command(Page, <<Domain/binary, ".enable">>, #{})
     || Domain <- [<<"Page">>, <<"Runtime">>, <<"Log">>, <<"Network">>]],
    {W, H} = maps:get(size, Options, {1280, 900}),
    size(Page, W, H, 1),
    scheme(Page, maps:get(scheme, Options, dark)),
    [command(Page, <<"Page.addScriptToEvaluateOnNewDocument">>, #{source => Script})
     || #{script := Script} <- [Options]],
    _ = command(Page, <<"Page.navigate">>, #{url => iolist_to_binary(Url)}),
    Page.

%% Ends a page, and forgets its profile.
close({Pid, _, Context}) ->
    command({Pid, none, none}, <<"Target.disposeBrowserContext">>, #{browserContextId => Context}).

command({Pid, Session, _}, Method, Params) ->
    Message = case Session of
                  none -> #{method => Method, params => Params};
                  _ -> #{method => Method, params => Params, sessionId => Session}
              end,
    case call(Pid, {command, Message}) of
        #{<<"result">> := Result} -> Result;
        #{<<"error">> := Error} -> error({Method, Error})
    end.

%% The value of a JavaScript expression; a promise is waited for.
eval(Page, Expression) ->
    case command(Page, <<"Runtime.evaluate">>,
                 #{expression => iolist_to_binary(Expression), awaitPromise => true,
                   returnByValue => true}) of
        #{<<"exceptionDetails">> := Details} -> error({javascript, Details});
        #{<<"result">> := #{<<"value">> := Value}} -> Value;
        #{<<"result">> := _} -> undefined
    end.

until(Page, Expression) -> until(Page, Expression, 20000).

%% Waits until an expression is true, which it may fail to be meanwhile; the value otherwise.
until(Page, Expression, Ms) ->
    real_os:until(fun() -> true = eval(Page, ["Boolean(", Expression, ")"]) end, Ms).

%% Marks the document that a page has now, and waits, after Fun, for another one in its place. Of a
%% page that loads, the browser may refuse to evaluate, and may never say that it is closed.
replaced(Page, Fun) ->
    true = eval(Page, "window.erlaneBefore = true"),
    _ = Fun(),
    until(Page, "!window.erlaneBefore && document.readyState === 'complete'").

%% What the browser has complained about on a page: exceptions, errors and warnings.
faults(Page) ->
    [E || Method <- [<<"Runtime.exceptionThrown">>, <<"Log.entryAdded">>,
                     <<"Runtime.consoleAPICalled">>],
          E <- events(Page, Method)].

events({Pid, Session, _}, Method) ->
    [maps:get(<<"params">>, E) || #{<<"method">> := M} = E <- call(Pid, {events, Session}),
                                  M =:= Method].

size(Page, Width, Height, Ratio) ->
    command(Page, <<"Emulation.setDeviceMetricsOverride">>,
            #{width => Width, height => Height, deviceScaleFactor => Ratio,
              mobile => Width < 500}).

scheme(Page, Scheme) ->
    command(Page, <<"Emulation.setEmulatedMedia">>,
            #{features => [#{name => <<"prefers-color-scheme">>, value => Scheme}]}).

screenshot(Page) ->
    #{<<"data">> := Data} = command(Page, <<"Page.captureScreenshot">>, #{format => png}),
    base64:decode(Data).

%% A key that has a name, pressed and let go.
key(Page, Name) ->
    Codes = #{<<"Tab">> => 9, <<"Enter">> => 13, <<"Escape">> => 27, <<"ArrowLeft">> => 37,
              <<"ArrowRight">> => 39, <<"ArrowDown">> => 40, <<"End">> => 35},
    Text = [{text, <<"\r">>} || Name =:= <<"Enter">>],
    Key = maps:from_list([{key, Name}, {code, Name},
                          {windowsVirtualKeyCode, maps:get(Name, Codes)} | Text]),
    _ = command(Page, <<"Input.dispatchKeyEvent">>, Key#{type => keyDown}),
    command(Page, <<"Input.dispatchKeyEvent">>, Key#{type => keyUp}).

%% Characters.
press(Page, Text) ->
    [begin
         _ = command(Page, <<"Input.dispatchKeyEvent">>, #{type => keyDown, text => <<C/utf8>>,
                                                           key => <<C/utf8>>}),
         command(Page, <<"Input.dispatchKeyEvent">>, #{type => keyUp, key => <<C/utf8>>})
     end || <<C/utf8>> <= Text].
