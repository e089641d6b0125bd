%% SPDX-License-Identifier: Apache-2.0
%% What suites share that need modules in files, and what the log was told.
-module(erlane_native_files).

-export([sums/0, module/4, where/1, said/1, wait/1, log/2]).

%% @doc Functions that are taken, and one of each kind that is left alone.
-spec sums() -> string().
sums() ->
    "-export([lcg/2, fnv/1, twice/1, say/1, size/1, keys/2]).\n"
    "lcg(X, 0) -> X;\n"
    "lcg(X, N) -> lcg((X * 6364136223846793005 + 1442695040888963407)"
    " band 16#FFFFFFFFFFFFFFFF, N - 1).\n"
    "fnv(B) -> fnv(B, 14695981039346656037).\n"
    "fnv(<<C, R/binary>>, H) ->\n"
    "    fnv(R, ((H bxor C) * 1099511628211) band 16#FFFFFFFFFFFFFFFF);\n"
    "fnv(<<>>, H) -> H.\n"
    "twice(X) when is_integer(X) -> 2 * X.\n"
    "say(P) ->\n"
    "    P ! hello.\n"
    "size(L) -> length(L).\n"
    "keys(0, Acc) -> Acc;\n"
    "keys(N, Acc) -> keys(N - 1, [N | Acc]).\n".

%% @doc Compiles a module from a text into a directory that becomes part of the code path. With
%% `native' among the options it is transformed.
-spec module(module(), iodata(), list(), file:filename()) -> module().
module(Name, Text, Options, Dir) ->
    Source = filename:join(Dir, atom_to_list(Name) ++ ".erl"),
    ok = filelib:ensure_dir(Source),
    Transform = [T || native <- Options,
                      T <- ["-compile({parse_transform, erlane_native}).\n"]],
    ok = file:write_file(Source, ["-module(", atom_to_list(Name), ").\n", Transform, Text]),
    {ok, Name, _} = compile:file(Source, [{outdir, Dir}, return, nowarn_export_all]
                                         ++ (Options -- [native])),
    true = code:add_patha(Dir),
    ok = erlane_native_ct:forget(Name),
    {module, Name} = code:load_file(Name),
    Name.

%% @doc A directory for a case.
-spec where(Config :: list()) -> file:filename().
where(Config) ->
    Name = "d" ++ integer_to_list(erlang:unique_integer([positive])),
    Dir = filename:join([proplists:get_value(priv_dir, Config), Name, "ebin"]),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Dir.

%% @doc What the log was told about erlane_native while a function ran.
-spec said(fun(() -> term())) -> {term(), [string()]}.
said(F) ->
    Self = self(),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => Self, level => warning}),
    try
        Value = F(),
        {Value, messages()}
    after
        ok = logger:remove_handler(?MODULE)
    end.

messages() ->
    receive {?MODULE, Text} -> [Text | messages()]
    after 0 -> []
    end.

%% @doc Of the logger.
-spec log(logger:log_event(), map()) -> term().
log(#{msg := {Format, Args}}, #{config := Pid}) when is_list(Format) ->
    case lists:flatten(io_lib:format(Format, Args)) of
        "erlane_native: " ++ Text -> Pid ! {?MODULE, Text};
        _ -> ignored
    end;
log(_, _) -> ignored.

%% @doc Until it is so.
-spec wait(fun(() -> boolean())) -> ok.
wait(Test) -> wait(Test, erlang:monotonic_time(millisecond) + 30000).

wait(Test, Deadline) ->
    case Test() of
        true -> ok;
        false ->
            true = erlang:monotonic_time(millisecond) < Deadline,
            erlang:yield(),
            wait(Test, Deadline)
    end.
