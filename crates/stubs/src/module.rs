//! The functions of one interface.
//!
//! Each becomes a *core*, which records or replays one call and is shared with the trap, and an
//! exported stub of the function's own name around it.

use hindcast_interpose::model::*;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use crate::expression::{length, value};
use crate::syntax::{arguments, arrow, code, constant, name, number_of, parameters, rust_type};
use crate::transfer::{after, before, copy};

/// `chosen`: the interface is active only when it was asked for.
pub fn module(interface: &Interface, chosen: bool) -> TokenStream {
    let functions = interface
        .functions
        .iter()
        .map(|function| match &function.code {
            Code::Kernel { call, exported } => kernel(function, call, *exported),
            Code::Library => library(function, chosen),
            Code::ByHand { .. } | Code::Harmless => quote!(),
        });
    let bit = chosen.then(|| {
        let bit = format_ident!("{}", interface.name.to_uppercase());
        quote! {
            use hindcast_execlog::config::interfaces;

            /// Whether the interface was chosen.
            const CHOSEN: u32 = interfaces::#bit;
        }
    });
    quote! {
        use crate::doors::foreign;
        use crate::mechanism::call::{Call, Failure};
        use crate::mechanism::files;
        use crate::raw::libc_result;
        use crate::state::thread;
        use crate::{functions, raw};
        #bit
        #(#functions)*
    }
}

/// The signature as documentation.
fn documentation(function: &Function) -> TokenStream {
    let text = format!(" `{}`", function.signature);
    quote!(#[doc = #text])
}

/// A symbol that the program calls, with the function's signature.
fn exported(function: &Function, symbol: &str, body: TokenStream) -> TokenStream {
    let (symbol, parameters, arrow) = (code(symbol), parameters(function), arrow(function.result));
    quote! {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn #symbol(#parameters) #arrow { #body }
    }
}

/// The function's own symbol, and its aliases, which call it.
fn symbols(function: &Function, body: TokenStream) -> TokenStream {
    let body = quote!(raw::in_own_frame(|| { #body }));
    let stub = exported(function, &function.name, body);
    let (name, arguments) = (code(&function.name), arguments(function));
    let aliases = function
        .aliases
        .iter()
        .map(|alias| exported(function, alias, quote!(unsafe { #name(#arguments) })));
    quote!(#stub #(#aliases)*)
}

fn core(function: &Function) -> TokenStream {
    code(&format!("core_{}", function.name))
}

/// What follows `&mut call` in a list: `, fd, buffer`.
fn further(list: TokenStream) -> TokenStream {
    match list.is_empty() {
        true => list,
        false => quote!(, #list),
    }
}

/// One system call.
fn kernel(function: &Function, call: &str, exported: bool) -> TokenStream {
    let number = number_of(call);
    let mut registers: Vec<_> = function
        .parameters
        .iter()
        .map(|parameter| {
            let name = name(parameter);
            quote!(#name as usize)
        })
        .collect();
    registers.resize(6, quote!(0));
    let raw = quote!(raw::syscall6(#number, #(#registers),*));

    let documentation = documentation(function);
    let (core, list) = (core(function), parameters(function));
    let core = if function.reproduce {
        // Runs the same in both runs and leaves nothing in the log.
        quote!(pub(crate) unsafe fn #core(#list) -> isize { unsafe { #raw } })
    } else {
        let protected = function.closes.iter().map(|closes| {
            let descriptor = name(&function.parameters[*closes]);
            quote!(if files::is_protected(#descriptor as i32) { return -(libc::EBADF as isize); })
        });
        let run = match function.blocks {
            true => quote! {
                call.blocks();
                let result = call.run_kernel(|thread| thread.blocking6(#number, [#(#registers),*]));
            },
            false => quote!(let result = call.run_kernel(|_| #raw);),
        };
        let (before, list) = (before(function), further(list));
        let after = after(function, Some(quote!(result >= 0)));
        quote! {
            pub(crate) unsafe fn #core(call: &mut Call #list) -> isize {
                unsafe { #(#protected)* #before #run #after result }
            }
        }
    };
    let stub = exported.then(|| symbols(function, kernel_stub(function, &raw)));
    quote!(#documentation #[inline(always)] #core #stub)
}

fn kernel_stub(function: &Function, raw: &TokenStream) -> TokenStream {
    let (core, arguments) = (core(function), arguments(function));
    let convert = match function.result {
        Type::Void => quote!(let _ = libc_result(result);),
        kind => {
            let kind = rust_type(kind);
            quote!(libc_result(result) as #kind)
        }
    };
    if function.reproduce {
        return quote! {
            let result = thread::in_system_space(|| unsafe { #core(#arguments) });
            #convert
        };
    }
    let (constant, arguments) = (constant(function), further(arguments));
    quote! {
        let result = match Call::enter(functions::#constant) {
            Some(mut call) => {
                let result = unsafe { #core(&mut call #arguments) };
                call.leave();
                result
            }
            None => unsafe { #raw },
        };
        #convert
    }
}

/// The next definition of the symbol.
fn library(function: &Function, chosen: bool) -> TokenStream {
    let upcalls = function
        .parameters
        .iter()
        .enumerate()
        .filter_map(|(index, parameter)| match &parameter.transfer {
            Transfer::Callback(callback) => Some(upcall(function, index, callback)),
            _ => None,
        });
    let (name, arrow) = (code(&function.name), arrow(function.result));
    let types = function
        .parameters
        .iter()
        .map(|parameter| rust_type(parameter.kind));
    let next = quote!(foreign::next!(#name: unsafe extern "C" fn(#(#types),*) #arrow));
    let documentation = documentation(function);
    let (core, stub) = if function.reproduce {
        (quote!(), reproduced(function, &next, chosen))
    } else {
        (
            library_core(function, &next),
            library_stub(function, &next, chosen),
        )
    };
    let stub = symbols(function, stub);
    quote!(#(#upcalls)* #documentation #core #stub)
}

/// Runs the same in both runs and leaves nothing in the log.
fn reproduced(function: &Function, next: &TokenStream, chosen: bool) -> TokenStream {
    let arguments = arguments(function);
    let passes = chosen.then(
        || quote!(if !foreign::is_in_replay_space(CHOSEN) { return unsafe { next(#arguments) }; }),
    );
    quote! {
        let next = #next;
        #passes
        thread::in_system_space(|| unsafe { next(#arguments) })
    }
}

fn library_stub(function: &Function, next: &TokenStream, chosen: bool) -> TokenStream {
    let (core, constant, arguments) = (core(function), constant(function), arguments(function));
    let enter = match chosen {
        true => quote!(foreign::enter(CHOSEN, functions::#constant)),
        false => quote!(Call::enter(functions::#constant)),
    };
    let further = further(arguments.clone());
    let run = match function.result {
        Type::Void => quote! {
            unsafe { #core(&mut call #further) };
            call.leave();
        },
        _ => quote! {
            let result = unsafe { #core(&mut call #further) };
            call.leave();
            result
        },
    };
    quote! {
        let Some(mut call) = #enter else {
            return unsafe { #next(#arguments) };
        };
        #run
    }
}

fn library_core(function: &Function, next: &TokenStream) -> TokenStream {
    let (core, list, arrow) = (
        core(function),
        further(parameters(function)),
        arrow(function.result),
    );
    let stand_ins = function
        .parameters
        .iter()
        .enumerate()
        .filter(|(_, parameter)| matches!(parameter.transfer, Transfer::Callback(_)))
        .map(|(index, parameter)| {
            let (pointer, upcall) = (name(parameter), upcall_name(function, index));
            quote! {
                let #pointer = if call.is_recording() {
                    foreign::stand_in(#upcall as *const (), #pointer)
                } else {
                    #pointer
                };
            }
        });
    let real = function.frees.iter().map(|freed| {
        let freed = name(&function.parameters[*freed]);
        quote! {
            let freed_ = #freed;
            let #freed = if call.is_recording() {
                foreign::take_real(freed_).unwrap_or(freed_)
            } else {
                freed_
            };
        }
    });
    let (before, run) = (before(function), run_next(function, next));
    let condition = match function.failure {
        Failure::Minus1 => Some(quote!(result != -1)),
        Failure::Null if function.result == Type::Pointer => Some(quote!(!result.is_null())),
        Failure::Null => Some(quote!(result != 0)),
        Failure::NonZero => Some(quote!(result == 0)),
        Failure::Never => None,
    };
    let after = after(function, condition);
    let shadow = function.foreign.iter().map(|foreign| {
        let copy = copy(function, 0, foreign);
        quote!(let result = foreign::shadow(call, result, #copy);)
    });
    let releases = function.releases.iter().map(|key| {
        let key = value(&key.value);
        quote!(foreign::release(call, #key as u64);)
    });
    let frees = function.frees.map(|_| quote!(foreign::free(call, freed_);));
    let result = (function.result != Type::Void).then(|| quote!(result));
    quote! {
        unsafe fn #core(call: &mut Call #list) #arrow {
            unsafe {
                #before #(#stand_ins)* #(#real)* #run #after #(#shadow)* #(#releases)* #frees #result
            }
        }
    }
}

/// Runs the library's function through the log, as 64 bits, and makes a result of its own type from
/// them.
fn run_next(function: &Function, next: &TokenStream) -> TokenStream {
    let arguments = arguments(function);
    let blocks = function.blocks.then(|| quote!(call.blocks();));
    let failure = match function.failure {
        Failure::Minus1 => quote!(Minus1),
        Failure::Null => quote!(Null),
        Failure::NonZero => quote!(NonZero),
        Failure::Never => quote!(Never),
    };
    let (bits, result) = match function.result {
        Type::Void => (quote!({ next(#arguments); 0 }), quote!(let _ = result;)),
        Type::Float { bytes: 4 } => (
            quote!(i64::from(next(#arguments).to_bits())),
            quote!(let result = f32::from_bits(result as u32);),
        ),
        Type::Float { .. } => (
            quote!(next(#arguments).to_bits() as i64),
            quote!(let result = f64::from_bits(result as u64);),
        ),
        kind => {
            let kind = rust_type(kind);
            (
                quote!(next(#arguments) as i64),
                quote!(let result = result as #kind;),
            )
        }
    };
    // Callbacks that outlive their registration may come from any call of the interface.
    quote! {
        #blocks
        let result = call.run_calling_back(
            Failure::#failure,
            || { let next = #next; #bits },
            foreign::call_back,
        );
        #result
    }
}

fn upcall_name(function: &Function, index: usize) -> TokenStream {
    code(&format!("upcall_{}_{index}", function.name))
}

/// The function that the library calls instead of the program's.
fn upcall(function: &Function, index: usize, callback: &Callback) -> TokenStream {
    let (upcall, constant, arrow) = (
        upcall_name(function, index),
        constant(function),
        arrow(callback.result),
    );
    let (index, bytes) = (
        code(&index.to_string()),
        code(&callback.result.bytes().to_string()),
    );
    let places: Vec<_> = (0..callback.parameters.len())
        .map(|place| format_ident!("a{place}"))
        .collect();
    let types = callback
        .parameters
        .iter()
        .map(|parameter| rust_type(parameter.kind));
    // Expressions name the parameters as the header does.
    let names = callback.parameters.iter().map(name);
    let values = callback.parameters.iter().map(|parameter| {
        let name = name(parameter);
        match &parameter.transfer {
            Transfer::In(size) => {
                let length = length(&size.value);
                quote!(upcall.bytes(#name, if #name.is_null() { 0 } else { #length });)
            }
            Transfer::InString => quote!(upcall.string(#name);),
            Transfer::Strings(count) => {
                let count = length(&count.value);
                quote!(upcall.strings(#name.cast(), #count);)
            }
            _ => quote!(upcall.value(#name as u64);),
        }
    });
    let run = match callback.result {
        Type::Void => quote!(upcall.run();),
        kind => {
            let kind = rust_type(kind);
            quote!(upcall.run() as #kind)
        }
    };
    quote! {
        unsafe extern "C" fn #upcall(#(#places: #types,)* number: f64) #arrow {
            unsafe {
                let mut upcall = foreign::Upcall::new(functions::#constant, #index, number, #bytes);
                #(let #names = #places;)*
                #(#values)*
                #run
            }
        }
    }
}
