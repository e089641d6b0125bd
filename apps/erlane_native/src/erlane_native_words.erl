%% SPDX-License-Identifier: Apache-2.0
%% @doc What to do about a reason, and what a call of the NIF interface is for, in words. Pure.
-module(erlane_native_words).

-export([remedy/1, api/1]).

%% @doc What would change it; `none' where nothing small would. The first that fits counts.
-spec remedy(string()) -> none | string().
remedy(Why) ->
    hd([R || {Pattern, R} <- remedies(), re:run(Why, Pattern, [{capture, none}]) =:= match]
       ++ [none]).

remedies() ->
    [{"has more than 64 bits|of this size|integer of more than 64",
      "keep it small: a guard on its operands, or band 16#FFFFFFFFFFFFFFFF where it is to wrap"},
     {"^argument [0-9]+ is not (an integer|a float|a binary)",
      "say in a guard or a -spec what it is, if that was guessed wrong"},
     {"is an integer in one call and a float",
      "begin the loop with a float: 0.0, not 0"},
     {"a value that is (an integer|a float) on one way only",
      "let both ways give the same kind of number"},
     {"^calls .*:(send|'!')/|^calls .*(self|spawn|put|get|erase)/",
      "do it before or after the loop, in a function that is not native"},
     {"^calls a fun", "call a function by its name, or pass what it gives"},
     {"^calls ", "call it before the loop and hand in what it gives, or write it in this module"},
     {"a literal of more than", "make it before the loop and hand it in"},
     {"which BEAM does as fast$", "the option `always' compiles it all the same"},
     {"a comprehension or fun", "write it as a function that calls itself"},
     {"too many lists are being made|so many elements that BEAM", none},
     {"put into a tuple or list at each turn", "put it there once, behind the loop"},
     {"place within a byte", "match whole bytes, and take the bits of them by band and bsr"},
     {"not matched as a binary|not always a binary", "let each call give a binary there"},
     {"native byte order", "say big or little"},
     {"a map|get_map|put_map|is_map|has_map", "read it before the loop, and hand in the values"},
     {"try|catch|landingpad", "catch outside of the function"},
     {"a call costs more than it does", "name the loop that calls it: it is compiled with it"},
     {"there is no loop|without a loop|does little that is faster", none}].

%% @doc What a function of the interface is called for.
-spec api(string()) -> string().
api(Name) ->
    Known = [{"get_long", "reads an integer from a term"},
             {"get_ulong", "reads an integer from a term"},
             {"get_double", "reads a float from a term"},
             {"make_long", "makes a term of an integer"},
             {"make_ulong", "makes a term of an integer"},
             {"make_double", "makes a term of a float"},
             {"make_tuple_from_array", "makes a tuple"},
             {"make_list_cell", "makes a list cell"},
             {"make_list_from_array", "makes a list"},
             {"make_sub_binary", "makes a part of a binary"},
             {"make_new_binary", "makes a binary"},
             {"make_binary", "makes a binary"},
             {"inspect_binary", "opens a binary"},
             {"get_list_cell", "reads a list cell"},
             {"get_tuple", "reads a tuple"},
             {"compare", "compares terms of any kind"},
             {"is_identical", "compares terms of any kind"},
             {"term_type", "asks for the kind of a term"}],
    case lists:keyfind(Name, 1, Known) of
        {_, What} -> What;
        false -> "calls enif_" ++ Name
    end.
